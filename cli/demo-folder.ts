import { rmSync } from "node:fs";
import { lstat, mkdtemp, readdir, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { cannotWrite, makeFolder } from "./folder.ts";

/** Where a demo keeps its certificates and its socket. */
export interface DemoFolder {
  readonly path: string;
  /** At once, so that it can be the last thing of a process. */
  remove(): void;
}

const OURS = /^culvert-demo-(\d+)-[A-Za-z0-9]{6}$/;

/** A temporary folder, removed at the end; or the one that was asked for, which stays. */
export async function demoFolder(dir: string | undefined, parent = tmpdir()): Promise<DemoFolder> {
  if (dir !== undefined) return { path: await makeFolder(dir), remove: () => {} };
  try {
    await removeStale(parent);
    const path = await mkdtemp(join(parent, `culvert-demo-${process.pid}-`));
    return { path, remove: () => rmSync(path, { recursive: true, force: true }) };
  } catch (error) {
    throw cannotWrite(`${parent} (name another folder by --dir, or by TMPDIR)`, error);
  }
}

/** Folders of this user's demos that were killed: their name holds the process id, and that process is gone. */
async function removeStale(parent: string): Promise<void> {
  for (const name of await readdir(parent)) {
    const pid = Number(OURS.exec(name)?.[1]);
    if (!Number.isSafeInteger(pid) || pid < 1 || isAlive(pid)) continue;
    const path = join(parent, name);
    const found = await lstat(path).catch(() => undefined);
    if (found?.isDirectory() && found.uid === process.getuid?.()) await rm(path, { recursive: true, force: true });
  }
}

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    // EPERM: it lives, and is another user's.
    return (error as NodeJS.ErrnoException).code !== "ESRCH";
  }
}
