import { once } from "node:events";
import { rmSync } from "node:fs";
import { lstat, mkdtemp, readdir, rm } from "node:fs/promises";
import { type AddressInfo, createServer, type Server } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { cannotWrite, makeFolder } from "../output-folder.ts";

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

export interface WantedPort {
  readonly port: number;
  readonly purpose: string;
}

export interface ChosenPort extends WantedPort {
  /** The port that was wanted, when another process has it. */
  readonly insteadOf?: number;
}

/** A port of loopback for each purpose: the wanted one, or a free one where it is taken. */
export async function choosePorts<Name extends string>(
  wanted: Readonly<Record<Name, WantedPort>>,
): Promise<Record<Name, ChosenPort>> {
  const held: Server[] = [];
  const chosen: Partial<Record<Name, ChosenPort>> = {};
  try {
    // All are held until the last is chosen, so that no free one is chosen twice or is another's wish.
    const busy: Name[] = [];
    for (const name of Object.keys(wanted) as Name[]) {
      const server = await listen(wanted[name].port);
      if (server === undefined) busy.push(name);
      else {
        held.push(server);
        chosen[name] = wanted[name];
      }
    }
    for (const name of busy) {
      const server = await listen(0);
      if (server === undefined) throw new Error("no port of 127.0.0.1 is free");
      held.push(server);
      const { port } = server.address() as AddressInfo;
      chosen[name] = { ...wanted[name], port, insteadOf: wanted[name].port };
    }
    return chosen as Record<Name, ChosenPort>;
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
