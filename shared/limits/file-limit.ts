import { opendirSync, readFileSync, statSync } from "node:fs";

const OPEN = "/proc/self/fd";
/** Names that are listed in one go: what comes of them holds the loop for about 2 ms. */
const PIECE = 256;
/** What a process has open by itself: 23 in a bare server (pipes, epoll, health and admin port); and probes, files read again. */
const OWN_FILES = 40;

/** How many files this process may have open; `undefined`: no limit, or none that this system tells. */
export function fileLimit(limits: string = readLimits()): number | undefined {
  const soft = /^Max open files +(\d+)/m.exec(limits)?.[1]; // Node has raised it to the hard one
  return soft === undefined ? undefined : Number(soft);
}

/**
 * How many of so many it has open; throws as the system does, also when looking takes one too many. What was inherited, or
 * opened before the limit was lowered, may be numbered beyond it and take nothing from what is left.
 */
export async function openFiles(limit: number, folder = OPEN): Promise<number> {
  // Linux says it since 6.2. It is asked at once, since it takes microseconds and the thread pool may be busy. It
  // does not say their numbers, so that those beyond count here: fewer seem to be left than are.
  const told = statSync(folder).size;
  return told > 0 ? Math.min(told, limit) : (await entries(folder, limit)) - 1; // of those the folder itself is one
}

/**
 * The kernel takes a millisecond or two for a thousand, in the thread pool. The folder is not opened there: it could get the
 * descriptor with which libuv is just turning a connection away, and then the loop spins until others are free.
 */
async function entries(folder: string, limit: number): Promise<number> {
  let found = 0;
  for await (const { name } of opendirSync(folder, { bufferSize: PIECE })) if (Number(name) < limit) found++;
  return found;
}

/** How many files a process needs for so many connections and listeners. */
export function withOwnFiles(needed: number): number {
  return needed + OWN_FILES;
}

/** From so many files on nobody is warned at the start: a log line, readyz and metrics tell before they are used up. */
const MANY_FILES = 4_096;

/** A warning if the limit is small, and lower than what the bounds of this process let come in. */
export function fileLimitWarning(needed: number, limit = fileLimit()): string | undefined {
  if (limit === undefined || limit >= Math.min(needed, MANY_FILES)) return undefined;
  return `this process may have ${limit} files open, and could need ${needed}, one for each connection: raise the limit (ulimit -n ${needed}, or LimitNOFILE=${needed} in its systemd unit)`;
}

function readLimits(): string {
  try {
    return readFileSync("/proc/self/limits", "utf8");
  } catch {
    return ""; // no Linux
  }
}
