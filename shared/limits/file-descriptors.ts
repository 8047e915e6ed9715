import { opendirSync, readFileSync, statSync } from "node:fs";
import { CulvertError, type OutcomeCode } from "../outcomes.ts";
import { descriptorShortage } from "./descriptor-shortage.ts";

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
const MAX_RESERVED = 64;

function reserved(limit: number): number {
  return Math.min(MAX_RESERVED, Math.floor(limit * RESERVED_PART));
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

const CURE = "raise its limit (ulimit -n, LimitNOFILE=)";

const MESSAGES = {
  enough: ["info", "file descriptors are enough again"],
  few: ["warn", `file descriptors run low: when none is left, connections are cut without a word; ${CURE}`],
  none: ["error", `file descriptors are nearly used up: what is new is refused, other connections may be cut; ${CURE}`],
} as const;

/** Interval at which descriptors are counted, ms. It is shorter while few are left, so that a refusal ends soon. */
const COUNT_MS = { enough: 1_000, few: 100, none: 100 };
/** Where they have to be listed, the pause is at least this many times as long as the listing took. */
const PAUSE_TIMES = 10;

/** Where a change of their number is reported. */
interface FileReports {
  readonly metrics: { filesUsedUp(): void };
  readonly throttledLog: {
    write(level: "info" | "warn" | "error", fields: { open: number; limit: number }, message: string): void;
  };
}

/** The process as sentences call it. */
type FilesOwner = "this server" | "the agent" | "this router";

/** How they are counted, if not as those of this process. */
export interface FileCounting {
  readonly limit?: number | undefined;
  /** How many of `limit` are open. */
  readonly count?: (limit: number) => Promise<number>;
}

/**
 * Counts the open file descriptors of this process against its limit. When hardly any is left, new connections are
 * refused: the rest is for probes, for the tunnel that comes back, and for files that are read again. Nothing else
 * tells when they run out, since libuv then closes connections, or lets them wait, without an event.
 */
export class FileDescriptors {
  readonly #owner: FilesOwner;
  readonly #reports: FileReports;
  readonly #countOpen: (limit: number) => Promise<number>;
  readonly #limit: number | undefined;
  /** The last count; `undefined` before the first, after one that failed, and without a limit. */
  #open: number | undefined;
  #left: FilesLeft = "enough";
  #timer: NodeJS.Timeout | undefined;
  #stopped = false;

  constructor(owner: FilesOwner, reports: FileReports, { limit = fileLimit(), count = openFiles }: FileCounting = {}) {
    this.#owner = owner;
    this.#reports = reports;
    this.#countOpen = count;
    this.#limit = limit;
  }

  start(): void {
    if (this.#limit !== undefined) void this.#look(this.#limit);
  }

  stop(): void {
    this.#stopped = true;
    clearTimeout(this.#timer);
  }

  /** For readiness, since another process may have descriptors left; empty while their number is unknown. */
  checks(): { name: string; ok: boolean; detail: string }[] {
    if (this.#open === undefined) return [];
    const detail = `${this.#open} of ${this.#limit} in use`;
    return [{ name: "file-descriptors", ok: this.#left !== "none", detail }];
  }

  /** For the status page. */
  problems(): string[] {
    if (this.#open === undefined || this.#left === "enough") return [];
    return [`${this.#open} of ${this.#limit} files are open: ${MESSAGES[this.#left][1]}`];
  }

  /** Why a new connection is refused at this moment, also while readiness has not recovered yet; absent: it is not. */
  get shortage(): string | undefined {
    if (this.#open === undefined || this.#limit === undefined) return undefined;
    if (this.#open < this.#limit - reserved(this.#limit)) return undefined;
    return `${this.#owner} has ${this.#open} of its ${this.#limit} files open: ${CURE}`;
  }

  /** Throws if there is a shortage. */
  requireRoom(code: OutcomeCode): void {
    const { shortage } = this;
    if (shortage !== undefined) throw new CulvertError(code, shortage);
  }

  /**
   * Why a system call found no descriptor, maybe before a count shows it; `undefined` if it failed for another reason.
   */
  shortageBehind(error: unknown): string | undefined {
    const whose = descriptorShortage(error);
    if (whose === undefined) return undefined;
    const owner = this.#owner;
    return whose === "process"
      ? `${owner} has no file descriptor left: ${CURE}`
      : `the machine of ${owner} has no file descriptor left: raise fs.file-max there`;
  }

  /** The next count is scheduled when this one is done, so there are never two. */
  async #look(limit: number): Promise<void> {
    const startedAt = performance.now();
    const open = await this.#count(limit);
    if (this.#stopped) return;
    this.#open = open;
    if (open !== undefined) this.#setLeft(filesLeft(open, limit, this.#left), open, limit);
    const waitMs = Math.max(COUNT_MS[this.#left], PAUSE_TIMES * (performance.now() - startedAt));
    this.#timer = setTimeout(() => void this.#look(limit), waitMs).unref();
  }

  async #count(limit: number): Promise<number | undefined> {
    try {
      return await this.#countOpen(limit);
    } catch (error) {
      // Counting takes a descriptor, too. A failure for another reason must not make us refuse anybody.
      return descriptorShortage(error) === undefined ? undefined : limit;
    }
  }

  #setLeft(left: FilesLeft, open: number, limit: number): void {
    if (left === this.#left) return;
    this.#left = left;
    if (left === "none") this.#reports.metrics.filesUsedUp();
    const [level, message] = MESSAGES[left];
    this.#reports.throttledLog.write(level, { open, limit }, message);
  }
}
