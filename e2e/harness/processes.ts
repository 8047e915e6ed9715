import { AsyncLocalStorage } from "node:async_hooks";
import { readdirSync, statSync } from "node:fs";
import { join } from "node:path";
import { ROOT } from "../../shared/runtime/testing/project.ts";
import { cpuSeconds, listensAt, rssBytes } from "./proc.ts";
import { Program, type ProgramOptions } from "./program.ts";

/** The built program, as the package's `bin` names it. */
export const MAIN = join(ROOT, "dist/cli/main.js");

/** With `CULVERT_RUNTIME=bun` the program runs on Bun, while the tests stay on Node.js. */
export const ON_BUN = runtimeNamed(process.env["CULVERT_RUNTIME"] ?? "node") === "bun";

/** The runtime of the built program. */
export const RUNTIME = ON_BUN ? join(ROOT, "node_modules/bun/bin/bun.exe") : process.execPath;

/** Options of a test that asks something of Node.js itself; scripts/suites.mjs has the list of whole files. */
export const nodeOnly = (reason: string) => (ON_BUN ? { skip: `on Bun: ${reason}` } : {});

/** A reason for `nodeOnly` (docs/node.md). */
export const NO_CERTIFICATE = "a certificate that was refused is not shown to the program";

function runtimeNamed(name: string): "node" | "bun" {
  if (name === "node" || name === "bun") return name;
  throw new Error(`CULVERT_RUNTIME=${name}: use node or bun`);
}

export interface ProcessOptions extends ProgramOptions {
  /** The runtime of the script, if not the Node.js of this process. */
  readonly runtime?: string;
  /** Options of node itself, before the script. */
  readonly nodeArgs?: readonly string[];
  /** Beside those of this process. */
  readonly env?: Readonly<Record<string, string>>;
  /** How many files it may have open (`ulimit -n`), if not as many as this process. */
  readonly fileLimit?: number;
  /** The `cgroup.procs` of a control group that it is to be a member of, from its first instruction on. */
  readonly cgroupProcs?: string;
}

/** A process of a script, with its figures from /proc. */
export class ManagedProcess extends Program {
  constructor(name: string, script: string, args: readonly string[], options: ProcessOptions = {}) {
    const { runtime = process.execPath, nodeArgs = [], fileLimit, cgroupProcs, env, ...rest } = options;
    const command = [runtime, ...nodeArgs, script, ...args];
    if (fileLimit !== undefined) command.unshift("sh", "-c", `ulimit -n ${fileLimit} && exec "$0" "$@"`);
    if (cgroupProcs !== undefined) command.unshift("sh", "-c", `echo $$ > ${cgroupProcs} && exec "$0" "$@"`);
    super(name, command, { ...rest, env: { ...process.env, ...env } });
  }

  rssBytes(): number {
    return rssBytes(this.pid);
  }

  cpuSeconds(): number {
    return cpuSeconds(this.pid);
  }

  /** Another process may answer at the port of a program that could not listen there. */
  protected override holdsPort(port: number): boolean {
    return listensAt(this.pid, port);
  }

  /** When a test is over nobody is interested any more in a clean end, which may take a drain. */
  override async [Symbol.asyncDispose](): Promise<void> {
    await this.kill();
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
  return new ManagedProcess(`culvert ${args[0]}`, other ?? MAIN, args, { runtime: RUNTIME, ...options });
}

let isBuilt = false;

/** The processes under test are the build, so a missing or older build is an error and not a surprise. */
export function requireBuilt(): void {
  if (isBuilt) return;
  const built = mtime(MAIN);
  if (built === 0) throw new Error(`${MAIN} does not exist: run "npm run build"`);
  const newer = ["shared", "server", "agent", "router", "sidecars", "cli", "ui"].find(
    (room) => newest(join(ROOT, room)) > built,
  );
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
