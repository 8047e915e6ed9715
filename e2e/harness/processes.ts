import { AsyncLocalStorage } from "node:async_hooks";
import { type ChildProcess, spawn } from "node:child_process";
import { readdirSync, statSync } from "node:fs";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { ROOT } from "../../shared/runtime/testing/project.ts";
import { cpuSeconds, fdCount, peakRssBytes, rssBytes } from "./proc.ts";
import { waitFor, within } from "./wait.ts";

/** The built program, as the package's `bin` names it. */
export const MAIN = join(ROOT, "dist/cli/main.js");

const LOG_LINES = 5000;
/** How a process began, as the address of its inspector, is kept for as long as it lives. */
const FIRST_LINES = 50;
const alive = new Set<ChildProcess>();
process.on("exit", () => {
  for (const child of alive) child.kill("SIGKILL");
});

export interface ProcessOptions {
  /** Options of node itself, before the script. */
  readonly nodeArgs?: readonly string[];
  readonly env?: Readonly<Record<string, string>>;
  /** Throw stdout away: reading a log must not cost the processes that are measured. */
  readonly ignoreStdout?: boolean;
  /** How many files it may have open (`ulimit -n`), if not as many as this process. */
  readonly fileLimit?: number;
  /** The `cgroup.procs` of a control group that it is to be a member of, from its first instruction on. */
  readonly cgroupProcs?: string;
  /** In a process group of its own: Ctrl-C in the terminal of the test does not reach it. */
  readonly detached?: boolean;
}

/** A child process with its log, its figures from /proc, and an end that is waited for. */
export class ManagedProcess implements AsyncDisposable {
  readonly name: string;
  readonly child: ChildProcess;
  /** Lines of stdout and stderr together, the first few and the last few thousand. */
  readonly log: string[] = [];
  readonly exited: Promise<{ readonly code: number | null; readonly signal: NodeJS.Signals | null }>;
  #exit: string | undefined;

  constructor(name: string, script: string, args: readonly string[], options: ProcessOptions = {}) {
    this.name = name;
    const command = [process.execPath, ...(options.nodeArgs ?? []), script, ...args];
    const { fileLimit, cgroupProcs } = options;
    if (fileLimit !== undefined) command.unshift("sh", "-c", `ulimit -n ${fileLimit} && exec "$0" "$@"`);
    if (cgroupProcs !== undefined) command.unshift("sh", "-c", `echo $$ > ${cgroupProcs} && exec "$0" "$@"`);
    this.child = spawn(command[0] as string, command.slice(1), {
      stdio: ["ignore", options.ignoreStdout ? "ignore" : "pipe", "pipe"],
      env: { ...process.env, ...options.env },
      detached: options.detached ?? false,
    });
    alive.add(this.child);
    for (const stream of [this.child.stdout, this.child.stderr]) {
      if (stream) createInterface({ input: stream }).on("line", (line) => this.#keep(line));
    }
    this.exited = new Promise((resolve, reject) => {
      this.child.on("error", reject);
      this.child.on("exit", (code, signal) => {
        alive.delete(this.child);
        this.#exit = signal ?? String(code);
        resolve({ code, signal });
      });
    });
    this.exited.catch(() => {});
  }

  get pid(): number {
    if (this.child.pid === undefined) throw new Error(`${this.name} did not start`);
    return this.child.pid;
  }

  get running(): boolean {
    return this.#exit === undefined;
  }

  rssBytes(): number {
    return rssBytes(this.pid);
  }

  peakRssBytes(): number {
    return peakRssBytes(this.pid);
  }

  fdCount(): number {
    return fdCount(this.pid);
  }

  cpuSeconds(): number {
    return cpuSeconds(this.pid);
  }

  /** Waits for a line of the log, also one that has come already; fails at once when the process ends. */
  async waitForLog(pattern: RegExp | string, deadlineMs = 30_000): Promise<string> {
    const found = (line: string) => (typeof pattern === "string" ? line.includes(pattern) : pattern.test(line));
    return await this.#waitFor(() => this.log.find(found), deadlineMs, `log line ${pattern}`);
  }

  /** Waits until a GET answers 200. */
  async waitForHealth(url: string, deadlineMs = 60_000): Promise<void> {
    const ok = async () => (await fetch(url, { signal: AbortSignal.timeout(1000) })).ok;
    await this.#waitFor(() => ok().catch(() => false), deadlineMs, `200 from ${url}`);
  }

  kill(signal: NodeJS.Signals = "SIGTERM"): void {
    if (this.running) this.child.kill(signal);
  }

  /** SIGTERM, and SIGKILL when that is not obeyed in time. */
  async stop(deadlineMs = 3000): Promise<void> {
    if (!this.running) return;
    this.kill("SIGCONT");
    this.kill("SIGTERM");
    await within(this.exited, deadlineMs, `${this.name} to end`).catch(() => {
      this.kill("SIGKILL");
      return this.exited;
    });
  }

  /** When a test is over nobody is interested any more in an end in order, which may take a drain. */
  async [Symbol.asyncDispose](): Promise<void> {
    this.kill("SIGKILL");
    await this.exited.catch(() => {});
  }

  #keep(line: string): void {
    this.log.push(line);
    if (this.log.length > LOG_LINES) this.log.splice(FIRST_LINES, LOG_LINES / 10);
  }

  async #waitFor<T>(condition: () => T | Promise<T>, deadlineMs: number, what: string): Promise<NonNullable<T>> {
    try {
      const result = await waitFor(async () => (await condition()) || !this.running, { deadlineMs, what });
      if (result !== true || this.running) return result as NonNullable<T>;
    } catch (error) {
      throw new Error(`${this.name}: ${(error as Error).message}\n${this.#tail()}`);
    }
    throw new Error(`${this.name} ended (${this.#exit}) before: ${what}\n${this.#tail()}`);
  }

  #tail(): string {
    return this.log.slice(-20).join("\n");
  }
}

const otherProgram = new AsyncLocalStorage<string>();

/** Every `culvert` that `action` starts is the build of the clone in `folder`, and not this one's. */
export function withBuildOf<T>(folder: string, action: () => Promise<T>): Promise<T> {
  return otherProgram.run(join(folder, "dist/cli/main.js"), action);
}

/** Starts `culvert <args>` from the build. */
export function startCulvert(args: readonly string[], options: ProcessOptions = {}): ManagedProcess {
  const other = otherProgram.getStore();
  if (other === undefined) requireBuilt();
  return new ManagedProcess(`culvert ${args[0]}`, other ?? MAIN, args, options);
}

let isBuilt = false;

/** The processes under test are the build, so a missing or older build is an error and not a surprise. */
export function requireBuilt(): void {
  if (isBuilt) return;
  const built = mtime(MAIN);
  if (built === 0) throw new Error(`${MAIN} does not exist: run "npm run build"`);
  const newer = ["shared", "server", "agent", "router", "cli"].find((room) => newest(join(ROOT, room)) > built);
  if (newer) throw new Error(`dist/ is older than a source in ${newer}/: run "npm run build"`);
  isBuilt = true;
}

function newest(folder: string): number {
  return readdirSync(folder, { recursive: true, encoding: "utf8" })
    .filter((path) => path.endsWith(".ts") && !path.endsWith(".test.ts"))
    .reduce((latest, path) => Math.max(latest, mtime(join(folder, path))), 0);
}

function mtime(path: string): number {
  return statSync(path, { throwIfNoEntry: false })?.mtimeMs ?? 0;
}
