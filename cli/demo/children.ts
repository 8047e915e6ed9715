import { type ChildProcess, spawn } from "node:child_process";
import { createInterface } from "node:readline";
import { programFile } from "../../shared/basics/program.ts";
import { deferred } from "../../shared/basics/promises.ts";

/** Lines of each child that are kept for an error about its end. */
const KEPT_LINES = 20;
const KILL_AFTER_MS = 5_000;

/**
 * Loaded into each child before its own module: it ends the child when the demo was killed and could not do so itself.
 * The channel must not keep a child alive that has nothing else to do.
 */
const LEASH = `data:text/javascript,${encodeURIComponent(
  'process.once("disconnect", () => process.kill(process.pid, "SIGTERM")); process.channel?.unref();',
)}`;

/** A child has ended although it was not asked to. */
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
  /** Resolves when it has written a line. */
  readonly firstLine: Promise<void>;
}

/** The processes of a demo, which end together. */
export class Children {
  /** Rejects with `ChildDied` when a child ends before `close()`. */
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

  /** `close()` was called: ends of children are expected. */
  get closing(): boolean {
    return this.#closing;
  }

  /**
   * Runs a file of the program, named as for `programFile`, in the same form as this process: built or as a source.
   */
  start(name: string, file: string, args: readonly string[]): Child {
    if (this.#closing) throw new Error("the demo is ending");
    const child = spawn(process.execPath, [...process.execArgv, "--import", LEASH, programFile(file), ...args], {
      stdio: ["ignore", "pipe", "pipe", "ipc"],
      env: ownEnvironment(),
    });
    const log: string[] = [];
    const { promise: firstLine, resolve: onFirstLine } = deferred();
    for (const stream of [child.stdout, child.stderr]) {
      if (stream === null) continue;
      createInterface({ input: stream }).on("line", (line) => {
        onFirstLine();
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
      // "close" comes after its last lines have been read, which is not true of "exit".
      child.once("close", (code, signal) => onEnd(signal === null ? `exit code ${code}` : signal));
    });
    this.#running.set(child, ended);
    return { name, pid: child.pid ?? 0, firstLine };
  }

  /** Sends SIGTERM to all, and SIGKILL to those that have not ended in time. */
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

/** The environment without options of a real server or agent, which are not meant for the demo. */
function ownEnvironment(): NodeJS.ProcessEnv {
  const entries = Object.entries(process.env);
  return Object.fromEntries(entries.filter(([name]) => !name.startsWith("CULVERT_") && name !== "PROXY_AGENT_ID"));
}
