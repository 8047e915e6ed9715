import { lstat, mkdir, mkdtemp, readdir, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";

/** Where a demo keeps its certificates and its socket. */
export interface DemoFolder {
  readonly path: string;
  remove(): Promise<void>;
}

const OURS = /^culvert-demo-(\d+)-[A-Za-z0-9]{6}$/;

/** A temporary folder, removed at the end; or the one that was asked for, which stays. */
export async function demoFolder(dir: string | undefined, parent = tmpdir()): Promise<DemoFolder> {
  if (dir !== undefined) {
    await mkdir(dir, { recursive: true, mode: 0o700 });
    return { path: resolve(dir), remove: async () => {} };
  }
  await removeStale(parent);
  const path = await mkdtemp(join(parent, `culvert-demo-${process.pid}-`));
  return { path, remove: () => rm(path, { recursive: true, force: true }) };
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
