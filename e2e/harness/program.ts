import { type ChildProcess, spawn } from "node:child_process";
import { createInterface } from "node:readline";
import { fdCount } from "./proc.ts";
import { waitFor, within } from "./wait.ts";

const LOG_LINES = 5000;
/** How a program began, as the address of its inspector, is kept for as long as it lives. */
const FIRST_LINES = 50;
/** For conditions that need no program to be run. */
const OFTEN_MS = 10;
const alive = new Set<ChildProcess>();
process.on("exit", () => {
  for (const child of alive) child.kill("SIGKILL");
});

export interface ProgramOptions {
  readonly env?: NodeJS.ProcessEnv;
  /** Throw stdout away: reading a log must not cost the processes that are measured. */
  readonly ignoreStdout?: boolean;
  /** In a process group of its own: Ctrl-C in the terminal of the test does not reach it. */
  readonly detached?: boolean;
}

/** A program of any language that runs until it is told to end; its log is kept, and its end is waited for. */
export class Program implements AsyncDisposable {
  readonly name: string;
  readonly child: ChildProcess;
  /** Lines of stdout and stderr together, the first few and the last few thousand. */
  readonly log: string[] = [];
  /** `exit code N`, the signal that it died of, or why it did not start. */
  readonly exited: Promise<string>;
  #end: string | undefined;

  constructor(name: string, argv: readonly string[], options: ProgramOptions = {}) {
    const { env = process.env, ignoreStdout = false, detached = false } = options;
    const [command = "", ...args] = argv;
    this.name = name;
    this.child = spawn(command, args, { stdio: ["ignore", ignoreStdout ? "ignore" : "pipe", "pipe"], env, detached });
    alive.add(this.child);
    for (const stream of [this.child.stdout, this.child.stderr]) {
      if (stream) createInterface({ input: stream }).on("line", (line) => this.#keep(line));
    }
    this.exited = new Promise((resolve) => {
      const ended = (how: string) => {
        alive.delete(this.child);
        this.#end ??= how;
        resolve(this.#end);
      };
      this.child.on("error", (error) => ended(error.message));
      this.child.on("exit", (code, signal) => ended(signal ?? `exit code ${code}`));
    });
  }

  get pid(): number {
    if (this.child.pid === undefined) throw new Error(`${this.name} did not start`);
    return this.child.pid;
  }

  get running(): boolean {
    return this.#end === undefined;
  }

  fdCount(): number {
    return fdCount(this.pid);
  }

  signal(signal: NodeJS.Signals): void {
    if (this.running) this.child.kill(signal);
  }

  /** SIGTERM, and SIGKILL when that is not obeyed in time. */
  async stop(deadlineMs = 3000): Promise<void> {
    this.signal("SIGCONT");
    this.signal("SIGTERM");
    await within(this.exited, deadlineMs, `${this.name} to end`).catch(() => this.kill());
  }

  /** SIGKILL. */
  async kill(): Promise<void> {
    this.signal("SIGKILL");
    await this.exited;
  }

  /** Waits for a line of the log, also one that has come already; fails at once when the program ends. */
  waitForLog(pattern: RegExp | string, deadlineMs = 30_000): Promise<string> {
    const found = (line: string) => (typeof pattern === "string" ? line.includes(pattern) : pattern.test(line));
    return this.waitUntil(() => this.log.find(found), deadlineMs, `log line ${pattern}`, OFTEN_MS);
  }

  /** Waits until this program answers a GET with 200. */
  async waitForHealth(url: string, deadlineMs = 60_000): Promise<void> {
    const port = Number(new URL(url).port);
    const ok = async () => (await fetch(url, { signal: AbortSignal.timeout(1000) })).ok && this.holdsPort(port);
    await this.waitUntil(() => ok().catch(() => false), deadlineMs, `200 from ${url}`, OFTEN_MS);
  }

  /** Whether it is this program that listens at the port, as far as that can be seen. */
  protected holdsPort(_port: number): boolean {
    return true;
  }

  /** Waits for a condition that this program has to bring about; fails at once when it ends. */
  async waitUntil<T>(
    condition: () => T | Promise<T>,
    deadlineMs: number,
    what: string,
    everyMs = 100,
  ): Promise<NonNullable<T>> {
    let value: T | undefined;
    const settled = async () => {
      value = await condition();
      return Boolean(value) || !this.running;
    };
    await waitFor(settled, { deadlineMs, everyMs, what }).catch((error: Error) => {
      throw new Error(`${this.name}: ${error.message}\n${this.tail()}`);
    });
    if (value) return value;
    throw new Error(`${this.name} ended (${this.#end}) before: ${what}\n${this.tail()}`);
  }

  tail(lines = 20): string {
    return this.log.slice(-lines).join("\n");
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.stop();
  }

  #keep(line: string): void {
    this.log.push(line);
    if (this.log.length > LOG_LINES) this.log.splice(FIRST_LINES, LOG_LINES / 10);
  }
}
