import { createHash } from "node:crypto";
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, renameSync, rmSync, statSync } from "node:fs";
import { homedir } from "node:os";
import { basename, join } from "node:path";
import { isRunOfOurs } from "./run-of-ours.ts";
import { run } from "./world/run.ts";

const UNFINISHED = "unfinished-";
/** A build takes no longer, ms. */
export const BUILD_DEADLINE_MS = 600_000;

export async function goIsInstalled(): Promise<boolean> {
  try {
    return (await run(["go", "version"], { env: environment() })).code === 0;
  } catch {
    return false;
  }
}

/** Runs `go` in a folder and answers what it printed; a failure carries what it said on stderr. */
export async function go(
  cwd: string,
  args: readonly string[],
  signal: AbortSignal,
  env: Readonly<Record<string, string>> = {},
): Promise<string> {
  // At SIGINT it stops its compilers and removes what it began.
  const { code, stdout, stderr } = await run(["go", ...args], {
    cwd,
    env: { ...environment(), ...env },
    signal,
    killSignal: "SIGINT",
  });
  if (code !== 0) throw new Error(`exit code ${code} of go ${args.join(" ")}\n${stderr}`);
  return stdout;
}

/** Static binaries, and no go.work of a folder above may mix in. */
function environment(): Record<string, string> {
  const own = Object.entries(process.env).filter((entry): entry is [string, string] => entry[1] !== undefined);
  return { ...Object.fromEntries(own), CGO_ENABLED: "0", GOWORK: "off" };
}

/**
 * The cached folder of that name; `build` fills it where it is missing.
 *
 * It is filled under another name and renamed when whole: a build that was killed leaves nothing that could be taken
 * for finished (and the next build removes it), and of two builds at once the later finds the folder taken and uses it.
 */
export async function cachedFolder(name: string, build: (dir: string) => Promise<void>): Promise<string> {
  const cache = cacheFolder();
  const folder = join(cache, name);
  if (existsSync(folder)) return folder;
  mkdirSync(cache, { recursive: true });
  sweepUnfinished(cache);
  const unfinished = mkdtempSync(join(cache, `${UNFINISHED}${process.pid}-`));
  try {
    await build(unfinished);
    moveUnlessTaken(unfinished, folder);
  } finally {
    rmSync(unfinished, { recursive: true, force: true });
  }
  return folder;
}

/** The program of a folder of Go sources, compiled once for each state of them. */
export async function goProgram(source: string): Promise<string> {
  const name = basename(source);
  const folder = await cachedFolder(`${name}-${digestOf(source)}`, async (unfinished) => {
    await go(source, ["build", "-o", join(unfinished, name), "."], AbortSignal.timeout(BUILD_DEADLINE_MS));
  });
  return join(folder, name);
}

/** A short name for all that a build is made of: the files of a folder, and words such as flags. */
export function digestOf(folder: string, ...words: readonly string[]): string {
  const hash = createHash("sha256");
  for (const name of readdirSync(folder, { recursive: true, encoding: "utf8" }).sort()) {
    const path = join(folder, name);
    if (statSync(path).isFile()) hash.update(`${name}\0`).update(readFileSync(path));
  }
  for (const word of words) hash.update(`\0${word}`);
  return hash.digest("hex").slice(0, 16);
}

/** Where a cached folder of that name is, or will be. */
export function cachedPath(name: string): string {
  return join(cacheFolder(), name);
}

/** Outside the tree, so that a fresh clone on the same machine finds the binaries again. */
function cacheFolder(): string {
  return join(process.env["XDG_CACHE_HOME"] || join(homedir(), ".cache"), "culvert", "kubernetes");
}

/** The folders' names carry the process that fills them. */
function sweepUnfinished(cache: string): void {
  for (const name of readdirSync(cache)) {
    if (!name.startsWith(UNFINISHED)) continue;
    const [pid = ""] = name.slice(UNFINISHED.length).split("-");
    if (!isRunOfOurs(pid)) rmSync(join(cache, name), { recursive: true, force: true });
  }
}

function moveUnlessTaken(from: string, to: string): void {
  try {
    renameSync(from, to);
  } catch (error) {
    if (!existsSync(to)) throw error;
  }
}
