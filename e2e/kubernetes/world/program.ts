import { type ChildProcess, spawn } from "node:child_process";
import { createInterface } from "node:readline";
import { fdCount } from "../../harness/proc.ts";
import { waitFor, within } from "../../harness/wait.ts";

const LOG_LINES = 5000;
const alive = new Set<ChildProcess>();
process.on("exit", () => {
  for (const child of alive) child.kill("SIGKILL");
});

/** A program of any language that runs until it is told to end; its log is kept, and its end is waited for. */
export class Program implements AsyncDisposable {
  readonly name: string;
  /** Lines of stdout and stderr together, the last few thousand. */
  readonly log: string[] = [];
  readonly exited: Promise<string>;
  readonly #child: ChildProcess;
  #end: string | undefined;

  constructor(name: string, argv: readonly string[], env: Readonly<Record<string, string>>) {
    const [command = "", ...args] = argv;
    this.name = name;
    this.#child = spawn(command, args, { stdio: ["ignore", "pipe", "pipe"], env });
    alive.add(this.#child);
    for (const stream of [this.#child.stdout, this.#child.stderr]) {
      if (stream) createInterface({ input: stream }).on("line", (line) => this.#keep(line));
    }
    this.exited = new Promise((resolve) => {
      const ended = (how: string) => {
        alive.delete(this.#child);
        this.#end ??= how;
        resolve(this.#end);
      };
      this.#child.on("error", (error) => ended(error.message));
      this.#child.on("exit", (code, signal) => ended(signal ?? `exit code ${code}`));
    });
  }

  get running(): boolean {
    return this.#end === undefined;
  }

  fdCount(): number {
    if (this.#child.pid === undefined) throw new Error(`${this.name} did not start`);
    return fdCount(this.#child.pid);
  }

  signal(signal: NodeJS.Signals): void {
    if (this.running) this.#child.kill(signal);
  }

  /** SIGTERM, and SIGKILL when that is not obeyed in time. */
  async stop(deadlineMs = 3000): Promise<void> {
    this.signal("SIGCONT");
    this.signal("SIGTERM");
    await within(this.exited, deadlineMs, `${this.name} to end`).catch(() => this.kill());
  }

  async kill(): Promise<void> {
    this.signal("SIGKILL");
    await this.exited;
  }

  /** Waits for a line of the log, also one that has come already; fails at once when the program ends. */
  async waitForLog(pattern: RegExp, deadlineMs = 10_000): Promise<RegExpExecArray> {
    const found = () => this.log.map((line) => pattern.exec(line)).find((match) => match !== null);
    return await this.waitUntil(found, deadlineMs, `log line ${pattern}`);
  }

  /** Waits for a condition that this program has to bring about; fails at once when it ends. */
  async waitUntil<T>(condition: () => T | Promise<T>, deadlineMs: number, what: string): Promise<NonNullable<T>> {
    let value: T | undefined;
    const settled = async () => {
      value = await condition();
      return Boolean(value) || !this.running;
    };
    await waitFor(settled, { deadlineMs, everyMs: 100, what }).catch((error: Error) => {
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
    if (this.log.length > LOG_LINES) this.log.splice(0, LOG_LINES / 10);
  }
}
