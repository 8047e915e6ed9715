import {
  descriptorShortage,
  type FilesLeft,
  fileLimit,
  filesLeft,
  isUsedUp,
  openFiles,
} from "../limits/file-descriptors.ts";
import { CulvertError, type OutcomeCode } from "../outcomes.ts";
import type { Check } from "./run.ts";
import type { ThrottledLog } from "./throttled-log.ts";

const CURE = "raise its limit (ulimit -n, LimitNOFILE=)";

const MESSAGES = {
  enough: ["info", "file descriptors are enough again"],
  few: ["warn", `file descriptors run low: when none is left, connections are cut without a word; ${CURE}`],
  none: ["error", `file descriptors are nearly used up: what is new is refused, other connections may be cut; ${CURE}`],
} as const;

/** Descriptors are counted so often, ms, and more often while there are few, so that a refusal ends soon. */
const COUNT_MS = { enough: 1_000, few: 100, none: 100 };
/** Where they have to be listed, the pause is at least so many times as long as the listing took. */
const PAUSE_TIMES = 10;

export interface FileDescriptorsDeps {
  readonly metrics: { filesUsedUp(): void };
  readonly throttledLog: Pick<ThrottledLog, "write">;
  /** The process as sentences call it. */
  readonly owner: "this server" | "the agent" | "this router";
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
  readonly #deps: FileDescriptorsDeps;
  readonly #limit: number | undefined;
  /** The last count; `undefined` before the first, after one that failed, and without a limit. */
  #open: number | undefined;
  #left: FilesLeft = "enough";
  #timer: NodeJS.Timeout | undefined;
  #stopped = false;

  constructor(deps: FileDescriptorsDeps) {
    this.#deps = deps;
    this.#limit = deps.limit ?? fileLimit();
  }

  start(): void {
    if (this.#limit !== undefined) void this.#look(this.#limit);
  }

  stop(): void {
    this.#stopped = true;
    clearTimeout(this.#timer);
  }

  /** For readiness, since another process may have descriptors left; empty while their number is unknown. */
  checks(): Check[] {
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
    if (this.#open === undefined || this.#limit === undefined || !isUsedUp(this.#open, this.#limit)) return undefined;
    return `${this.#deps.owner} has ${this.#open} of its ${this.#limit} files open: ${CURE}`;
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
    const { owner } = this.#deps;
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
      return await (this.#deps.count ?? openFiles)(limit);
    } catch (error) {
      // Counting takes a descriptor, too. A failure for another reason must not make us refuse anybody.
      return descriptorShortage(error) === undefined ? undefined : limit;
    }
  }

  #setLeft(left: FilesLeft, open: number, limit: number): void {
    if (left === this.#left) return;
    this.#left = left;
    if (left === "none") this.#deps.metrics.filesUsedUp();
    const [level, message] = MESSAGES[left];
    this.#deps.throttledLog.write(level, { open, limit }, message);
  }
}
