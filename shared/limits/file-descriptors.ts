import { opendirSync, readFileSync, statSync } from "node:fs";

const OWN_FOLDER = "/proc/self/fd";
/** Names that are read in one go when the folder has to be listed; they hold the event loop for about 2 ms. */
const NAMES_AT_ONCE = 256;
/** Descriptors that a process has open by itself: 23 in a bare server, and those of probes and of files read again. */
const OWN_FILES = 40;
/** From this limit on there is no warning at the start: log, readyz and metrics report a shortage in time. */
const MANY_FILES = 4_096;

/** The limit of open files of this process, or `undefined` if there is none or the system does not tell it. */
export function fileLimit(limits: string = readLimits()): number | undefined {
  const soft = /^Max open files +(\d+)/m.exec(limits)?.[1]; // Node has raised it to the hard one
  return soft === undefined ? undefined : Number(soft);
}

function readLimits(): string {
  try {
    return readFileSync("/proc/self/limits", "utf8");
  } catch {
    return ""; // not Linux
  }
}

/**
 * How many of `limit` descriptors are open. Rejects as the system does, also when this look itself finds none left.
 *
 * Linux 6.2 and newer tell the number as the folder's size. Before, the folder is listed, which takes 25 ms for
 * 16,000. It is not opened in the thread pool: it could get the descriptor with which libuv is rejecting a connection
 * at that moment, and then the event loop spins until others are free.
 */
export async function openFiles(limit: number, folder = OWN_FOLDER): Promise<number> {
  const { size } = statSync(folder);
  if (size > 0) return Math.min(size, limit);
  let found = -1; // the folder itself
  for await (const { name } of opendirSync(folder, { bufferSize: NAMES_AT_ONCE })) {
    if (Number(name) < limit) found++; // an inherited descriptor beyond the limit takes nothing from it
  }
  return found;
}

/** `none`: the rest is reserved for probes, for tunnels that come back and for files that are read again. */
export type FilesLeft = "enough" | "few" | "none";

/** Free descriptors at which there are `few` or `none`, as a part of the limit. */
const FEW_PART = 0.1;
const RESERVED_PART = 1 / 16;
const RESERVED_MOST = 64;

function reserved(limit: number): number {
  return Math.min(RESERVED_MOST, Math.floor(limit * RESERVED_PART));
}

/** True when only the reserved descriptors are left. */
export function isUsedUp(open: number, limit: number): boolean {
  return open >= limit - reserved(limit);
}

/**
 * A worse level than `before` begins at its bound; it ends only when twice as many are free, so that it does not flap.
 */
export function filesLeft(open: number, limit: number, before: FilesLeft): FilesLeft {
  const free = limit - open;
  const isLeft = (bound: number, wasHere: boolean): boolean => (wasHere ? free >= 2 * bound : free > bound);
  if (!isLeft(reserved(limit), before === "none")) return "none";
  return isLeft(limit * FEW_PART, before !== "enough") ? "enough" : "few";
}

/** A warning if this process may need more open files for its connections and listeners than its limit allows well. */
export function fileLimitWarning(connections: number, limit = fileLimit()): string | undefined {
  const needed = Math.floor((connections + OWN_FILES) / (1 - FEW_PART)) + 1;
  if (limit === undefined || limit >= Math.min(needed, MANY_FILES)) return undefined;
  const cure = `raise the limit (ulimit -n ${needed}, or LimitNOFILE=${needed} in its systemd unit)`;
  return `this process may have ${limit} files open, and could need ${needed}, one for each connection: ${cure}`;
}

const SHORTAGES: ReadonlyMap<string | undefined, "process" | "machine"> = new Map([
  ["EMFILE", "process"],
  ["ENFILE", "machine"],
]);

/** Says whose descriptors are used up, if that is why something failed, or one of the attempts that it consisted of. */
export function descriptorShortage(error: unknown): "process" | "machine" | undefined {
  if (!(error instanceof Error)) return undefined;
  const own = SHORTAGES.get((error as NodeJS.ErrnoException).code);
  if (own !== undefined) return own;
  const causes = error instanceof AggregateError ? error.errors : [error.cause];
  return causes.map(descriptorShortage).find((whose) => whose !== undefined);
}

/** Modules are read many at a time: router and agent start with 120 descriptors and not with 100, a server with 150. */
const FOR_MODULES = 150;

/** A sentence if a start failed for want of descriptors, else `undefined`. */
export function tooFewFilesToStart(error: unknown): string | undefined {
  switch (descriptorShortage(error)) {
    case "process":
      return (
        `this process may have ${limitOfReport()} files open, which is too few to start (${FOR_MODULES} for its own ` +
        "modules, and what its configuration names): raise the limit (ulimit -n, or LimitNOFILE= in its systemd unit)"
      );
    case "machine":
      return (
        "this machine has as many files open as it may, which leaves none for a start: " +
        "raise its limit (sysctl fs.file-max), or end what holds them"
      );
    default:
      return undefined;
  }
}

/** The limit as Node's report has it, since reading /proc would take a descriptor. */
function limitOfReport(): string {
  const { report } = process;
  Object.assign(report, { excludeNetwork: true }); // it would look up the names of peers
  const { userLimits } = report.getReport() as { userLimits?: { open_files?: { soft?: number | string } } };
  return String(userLimits?.open_files?.soft ?? "only so many");
}
