import { DescriptorWatch, type DescriptorWatchOptions, type FilesSeen, usedUp } from "../limits/descriptor-watch.ts";
import { outOfFiles } from "../limits/out-of-files.ts";
import { CulvertError, type OutcomeCode } from "../outcomes.ts";
import type { ThrottledLog } from "./throttled-log.ts";

const CURE = "raise its limit (ulimit -n, LimitNOFILE=)";

const SAID = {
  enough: ["info", "file descriptors are enough again"],
  few: ["warn", `file descriptors run low: when none is left, connections are cut without a word; ${CURE}`],
  none: ["error", `file descriptors are nearly used up: what is new is refused, other connections may be cut; ${CURE}`],
} as const;

export interface FileRoomDeps extends Partial<Pick<DescriptorWatchOptions, "limit" | "count">> {
  readonly metrics: { filesUsedUp(): void };
  readonly throttledLog: Pick<ThrottledLog, "write">;
  /** Whose they are, for sentences. */
  readonly owner: "this server" | "the agent" | "this router";
}

/**
 * Whether this process has file descriptors left for who comes. When hardly any is, new connections are refused: what is left
 * is for those who look what is wrong, for the tunnel that comes back, and for files that are read again.
 */
export class FileRoom {
  readonly #deps: FileRoomDeps;
  readonly #watch: DescriptorWatch;

  constructor(deps: FileRoomDeps) {
    this.#deps = deps;
    const { limit, count } = deps;
    this.#watch = new DescriptorWatch({ limit, ...(count && { count }), onChange: (seen) => this.#tell(seen) });
  }

  /** For readiness, since another process may have room for whoever is sent away; empty where nobody tells of a limit. */
  checks(): Check[] {
    const { seen } = this.#watch;
    if (seen === undefined) return [];
    const { left, open, limit } = seen;
    return [{ name: "file-descriptors", ok: left !== "none", detail: `${open} of ${limit} in use` }];
  }

  /** For whoever asks what is wrong. */
  problems(): string[] {
    const { seen } = this.#watch;
    if (seen === undefined || seen.left === "enough") return [];
    return [`${seen.open} of ${seen.limit} files are open: ${SAID[seen.left][1]}`];
  }

  start(): void {
    this.#watch.start();
  }

  stop(): void {
    this.#watch.stop();
  }

  /** Why a new connection would take what is kept back now, whatever readiness still says; absent: it would not. */
  get shortage(): string | undefined {
    const { seen } = this.#watch;
    if (seen === undefined || !usedUp(seen)) return undefined;
    return `${this.#deps.owner} has ${seen.open} of its ${seen.limit} files open: ${CURE}`;
  }

  /** The same for a CONNECT, which hears it in words. */
  mustHaveRoom(code: OutcomeCode): void {
    const { shortage } = this;
    if (shortage !== undefined) throw new CulvertError(code, shortage);
  }

  /** Why a call of the system has failed for want of a descriptor, which may be before a look tells of it; `undefined`: it failed for something else. */
  shortageBehind(error: unknown): string | undefined {
    const whose = outOfFiles(error);
    if (whose === undefined) return undefined;
    const { owner } = this.#deps;
    return whose === "process"
      ? `${owner} has no file descriptor left: ${CURE}`
      : `the machine of ${owner} has no file descriptor left: raise fs.file-max there`;
  }

  #tell({ left, open, limit }: FilesSeen): void {
    if (left === "none") this.#deps.metrics.filesUsedUp();
    const [level, message] = SAID[left];
    this.#deps.throttledLog.write(level, { open, limit }, message);
  }
}

/** One condition of readiness, such as "listeners are up". */
export interface Check {
  readonly name: string;
  readonly ok: boolean;
  /** Not all is in use as it is configured, and the process is ready all the same; `detail` says what. */
  readonly hasFaults?: boolean;
  readonly detail?: string;
}

/** What stands on the health port in place of names of tenants and paths of files. */
export const WHERE_NAMED = "named at /readyz?verbose of the admin port";

/** So many faults or the like, where they are not named; empty: there are none. */
export function counted(count: number, what: string): string {
  return count === 0 ? "" : `${count} ${what}${count === 1 ? "" : "s"}, ${WHERE_NAMED}`;
}
