import { once } from "node:events";
import { rmSync } from "node:fs";
import { lstat, mkdtemp, readdir, rm } from "node:fs/promises";
import { type AddressInfo, createServer, type Server } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { cannotWrite, makeFolder } from "../common/output-folder.ts";

/** The folder of a demo for its certificates and its socket. */
export interface DemoFolder {
  readonly path: string;
  /** Synchronous, so that a process can call it before it exits. */
  remove(): void;
}

const OURS = /^culvert-demo-(\d+)-[A-Za-z0-9]{6}$/;

/** A temporary folder that the demo removes at its end, or the folder of --dir, which stays. */
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

/** Removes folders of this user's demos that were killed: their names contain the id of a process that has ended. */
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
    // EPERM: the process runs as another user.
    return (error as NodeJS.ErrnoException).code !== "ESRCH";
  }
}

export interface WantedPort {
  readonly port: number;
  readonly purpose: string;
}

export interface ChosenPort extends WantedPort {
  /** The port that was wanted, if another process uses it. */
  readonly insteadOf?: number;
}

/** A port of 127.0.0.1 for each purpose: the wanted one, or a free one if that is taken. */
export async function choosePorts<Name extends string>(
  wanted: Readonly<Record<Name, WantedPort>>,
): Promise<Record<Name, ChosenPort>> {
  const held: Server[] = [];
  const chosen: Partial<Record<Name, ChosenPort>> = {};
  try {
    // All are kept open until the last is chosen, so that no port is chosen twice.
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
