import { type ChildProcess, spawn } from "node:child_process";
import { extname } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { deferred } from "../shared/basics/promises.ts";

/** Lines kept of each child, for the report of its death. */
const KEPT_LINES = 20;
const KILL_AFTER_MS = 5_000;

/** A child ended although nobody had asked it to. */
export class ChildDied extends Error {
  override readonly name = "ChildDied";
  readonly log: readonly string[];

  constructor(child: string, how: string, log: readonly string[]) {
    super(`the ${child} has ended by itself (${how})`);
    this.log = log;
  }
}

export interface Child {
  readonly name: string;
  readonly pid: number;
  /** Resolves when it has said something. */
  readonly firstLine: Promise<void>;
}

/** The processes of a demo: started by name, ended together. */
export class Children {
  /** Rejects with `ChildDied` when one ends before `close`. */
  readonly died: Promise<never>;
  readonly #onLine: (name: string, line: string) => void;
  readonly #running = new Map<ChildProcess, Promise<void>>();
  readonly #death = deferred<never>();
  #closing = false;

  constructor(onLine: (name: string, line: string) => void) {
    this.#onLine = onLine;
    this.died = this.#death.promise;
    this.died.catch(() => {});
    process.once("exit", this.#onExit);
  }

  /** Ends are expected from now on. */
  get closing(): boolean {
    return this.#closing;
  }

  /** Runs a file of this folder with Node itself, as this process runs: from the build, or through a loader. */
  start(name: string, file: string, args: readonly string[]): Child {
    if (this.#closing) throw new Error("the demo is ending");
    const child = spawn(
      process.execPath,
      [...process.execArgv, "--import", sibling("demo-leash").href, path(file), ...args],
      {
        stdio: ["ignore", "pipe", "pipe", "ipc"],
        env: ownEnvironment(),
      },
    );
    const log: string[] = [];
    const { promise: firstLine, resolve: speak } = deferred();
    for (const stream of [child.stdout, child.stderr]) {
      if (stream === null) continue;
      createInterface({ input: stream }).on("line", (line) => {
        speak();
        log.push(line);
        if (log.length > KEPT_LINES) log.shift();
        this.#onLine(name, line);
      });
    }
    const ended = new Promise<void>((resolve) => {
      const onEnd = (how: string): void => {
        this.#running.delete(child);
        if (!this.#closing) this.#death.reject(new ChildDied(name, how, log));
        resolve();
      };
      child.once("error", (error) => onEnd(error.message));
      // "close", not "exit": its last words have been read by then.
      child.once("close", (code, signal) => onEnd(signal === null ? `exit code ${code}` : signal));
    });
    this.#running.set(child, ended);
    return { name, pid: child.pid ?? 0, firstLine };
  }

  /** SIGTERM for all; those that do not obey in time are killed. */
  async close(): Promise<void> {
    this.#closing = true;
    for (const child of this.#running.keys()) child.kill("SIGTERM");
    const timer = setTimeout(() => this.kill(), KILL_AFTER_MS);
    await Promise.all(this.#running.values());
    clearTimeout(timer);
    process.off("exit", this.#onExit);
  }

  kill(): void {
    for (const child of this.#running.keys()) child.kill("SIGKILL");
  }

  readonly #onExit = (): void => this.kill();
}

function path(file: string): string {
  return fileURLToPath(sibling(file));
}

/** `.ts` beside `.ts`, `.js` beside `.js`. */
function sibling(file: string): URL {
  return new URL(`./${file}${extname(import.meta.url)}`, import.meta.url);
}

/** Options of a real server or agent in the environment are not meant for a demo's. */
function ownEnvironment(): NodeJS.ProcessEnv {
  const entries = Object.entries(process.env);
  return Object.fromEntries(entries.filter(([name]) => !name.startsWith("CULVERT_") && name !== "PROXY_AGENT_ID"));
}
