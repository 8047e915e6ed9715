import { execFile } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, renameSync, rmSync } from "node:fs";
import { homedir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";

const run = promisify(execFile);

export async function goIsInstalled(): Promise<boolean> {
  try {
    await run("go", ["version"]);
    return true;
  } catch {
    return false;
  }
}

/** Runs `go` in a folder and answers what it printed; a failure carries what it said on stderr. */
export async function go(cwd: string, ...args: string[]): Promise<string> {
  // Static binaries, and no go.work of a folder above may mix in.
  const env = { ...process.env, CGO_ENABLED: "0", GOWORK: "off" };
  const { stdout } = await run("go", args, { cwd, env, maxBuffer: 64 * 1024 * 1024 });
  return stdout;
}

/**
 * The cached folder of that name; `build` fills it where it is missing.
 *
 * It is filled under another name and renamed when whole: a build that was killed leaves nothing that could be taken
 * for finished, and of two builds at once the later finds the folder taken and uses it.
 */
export async function cachedFolder(name: string, build: (dir: string) => Promise<void>): Promise<string> {
  const cache = cacheFolder();
  const folder = join(cache, name);
  if (existsSync(folder)) return folder;
  mkdirSync(cache, { recursive: true });
  const unfinished = mkdtempSync(join(cache, "unfinished-"));
  try {
    await build(unfinished);
    moveUnlessTaken(unfinished, folder);
  } finally {
    rmSync(unfinished, { recursive: true, force: true });
  }
  return folder;
}

/** Outside the tree, so that a fresh clone on the same machine finds the binaries again. */
function cacheFolder(): string {
  return join(process.env["XDG_CACHE_HOME"] || join(homedir(), ".cache"), "culvert", "kubernetes");
}

function moveUnlessTaken(from: string, to: string): void {
  try {
    renameSync(from, to);
  } catch (error) {
    if (!existsSync(to)) throw error;
  }
}
