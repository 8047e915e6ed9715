import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { rmSync } from "node:fs";
import { mkdtemp } from "node:fs/promises";
import { type AddressInfo, createServer, type Server } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { programCommand } from "../../shared/basics/program.ts";
import { deferred } from "../../shared/basics/promises.ts";
import { cannotWrite, makeFolder } from "../pki/pki.ts";

// Processes, a folder and ports: a demo takes them from the machine, and gives them back.

/** Lines of each child that are kept for an error about its end. */
const KEPT_LINES = 20;
const KILL_AFTER_MS = 5_000;

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
  /** `close()` was called: ends of children are expected. */
  closing = false;

  constructor(onLine: (name: string, line: string) => void) {
    this.#onLine = onLine;
    this.died = this.#death.promise;
    this.died.catch(() => {});
    process.once("exit", this.#onExit);
  }

  /** Runs a command of this program. Its channel (`ipc`) ends it when the demo was killed: cli/main.ts. */
  start(name: string, args: readonly string[]): Child {
    if (this.closing) throw new Error("the demo is ending");
    const [program, ...line] = programCommand();
    const child = spawn(program, [...line, ...args], {
      // Its stdin is not read. "ignore" would need a /dev/null.
      stdio: ["inherit", "pipe", "pipe", "ipc"],
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
        if (!this.closing) this.#death.reject(new ChildDied(name, how, log));
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
    this.closing = true;
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

/** How often npm is looked for, ms. */
const NPM_CHECK_MS = 500;

/**
 * Asks this process to end when npm, which has started it, is gone: after a SIGKILL it could pass on no signal. A demo
 * without npm may outlive its parent, as under nohup.
 */
export function endWithNpm(): void {
  if (process.env["npm_lifecycle_event"] === undefined) return;
  const parent = process.ppid;
  const timer = setInterval(() => {
    if (process.ppid === parent) return;
    clearInterval(timer);
    process.kill(process.pid, "SIGTERM");
  }, NPM_CHECK_MS).unref();
}

/** The environment without options of a real server or agent, which are not meant for the demo. */
function ownEnvironment(): NodeJS.ProcessEnv {
  const entries = Object.entries(process.env);
  return Object.fromEntries(entries.filter(([name]) => !name.startsWith("CULVERT_") && name !== "PROXY_AGENT_ID"));
}

/** The folder of a demo for its certificates and its socket. */
export interface DemoFolder {
  readonly path: string;
  /** Synchronous, so that a process can call it before it exits. */
  remove(): void;
}

/** A temporary folder that the demo removes at its end, or the folder of --dir, which stays. */
export async function demoFolder(dir: string | undefined): Promise<DemoFolder> {
  if (dir !== undefined) return { path: await makeFolder(dir), remove: () => {} };
  const parent = tmpdir();
  try {
    const path = await mkdtemp(join(parent, "culvert-demo-"));
    return { path, remove: () => rmSync(path, { recursive: true, force: true }) };
  } catch (error) {
    throw cannotWrite(`${parent} (name another folder by --dir, or by TMPDIR)`, error);
  }
}

/** A port of 127.0.0.1 for each name: the wanted one, or a free one if that is taken. */
export async function choosePorts<Name extends string>(
  wanted: Readonly<Record<Name, number>>,
): Promise<Record<Name, number>> {
  const held: Server[] = [];
  const chosen: Record<Name, number> = { ...wanted };
  try {
    // All are kept open until the last is chosen, so that no port is chosen twice.
    for (const name of Object.keys(wanted) as Name[]) {
      const server = (await listen(wanted[name])) ?? (await listen(0));
      if (server === undefined) throw new Error("no port of 127.0.0.1 is free");
      held.push(server);
      chosen[name] = (server.address() as AddressInfo).port;
    }
    return chosen;
  } finally {
    for (const server of held) server.close();
    await Promise.all(held.map((server) => once(server, "close")));
  }
}

async function listen(port: number): Promise<Server | undefined> {
  const server = createServer();
  server.listen(port, "127.0.0.1");
  try {
    await once(server, "listening");
    return server;
  } catch {
    return undefined;
  }
}
