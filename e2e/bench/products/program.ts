import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { closeSync, openSync, readFileSync } from "node:fs";

const alive = new Set<ChildProcess>();
process.on("exit", () => {
  for (const child of alive) child.kill("SIGKILL");
});

/** The name of a program and its arguments. */
export type Command = readonly [string, ...string[]];

/** A program of any maker. Its output goes into a file, so that no log costs this process anything. */
export class Program implements AsyncDisposable {
  readonly #child: ChildProcess;
  readonly #log: string;
  readonly #exited: Promise<unknown>;

  constructor([program, ...args]: Command, log: string, env: Readonly<Record<string, string>> = {}) {
    this.#log = log;
    const file = openSync(log, "w");
    this.#child = spawn(program, args, { stdio: ["ignore", file, file], env: { ...process.env, ...env } });
    closeSync(file);
    alive.add(this.#child);
    this.#exited = once(this.#child, "exit")
      .catch(() => {}) // it was not started: `pid` says so
      .finally(() => alive.delete(this.#child));
  }

  get pid(): number {
    if (this.#child.pid === undefined) throw new Error(`${this.#child.spawnfile} did not start`);
    return this.#child.pid;
  }

  /** By itself, or before it had begun. */
  get ended(): boolean {
    const { pid, exitCode, signalCode } = this.#child;
    return pid === undefined || exitCode !== null || signalCode !== null;
  }

  lastLines(): string {
    return readFileSync(this.#log, "utf8").trimEnd().split("\n").slice(-5).join("\n");
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#child.kill("SIGKILL");
    await this.#exited;
  }
}
