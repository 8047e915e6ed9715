import { CulvertError } from "../../shared/outcomes.ts";
import { type FilesSeen, FileWatch, type FileWatchOptions, usedUp } from "../../shared/process/file-watch.ts";
import type { StrangerLog } from "../../shared/process/stranger-log.ts";
import type { ServerMetrics } from "../metrics.ts";

const CURE = "raise its limit (ulimit -n, LimitNOFILE=)";

const SAID = {
  enough: ["info", "file descriptors are enough again"],
  few: ["warn", `file descriptors run low: when none is left, connections are cut without a word; ${CURE}`],
  none: ["error", `file descriptors are nearly used up: CONNECTs are refused, other connections may be cut; ${CURE}`],
} as const;

export interface FileRoomDeps extends Partial<Pick<FileWatchOptions, "limit" | "count">> {
  readonly metrics: Pick<ServerMetrics, "filesUsedUp">;
  readonly strangers: StrangerLog;
}

/**
 * Whether this process has file descriptors left for who comes. When hardly any is, new CONNECTs are refused in words: what is
 * left is for those who look what is wrong, for agents that come back, and for files that are read again.
 */
export class FileRoom {
  readonly #deps: FileRoomDeps;
  readonly #watch: FileWatch;

  constructor(deps: FileRoomDeps) {
    this.#deps = deps;
    const { limit, count } = deps;
    this.#watch = new FileWatch({ limit, ...(count && { count }), onChange: (seen) => this.#tell(seen) });
  }

  /** For readiness; `undefined` where nobody tells of a limit. */
  get seen(): FilesSeen | undefined {
    return this.#watch.seen;
  }

  start(): void {
    this.#watch.start();
  }

  stop(): void {
    this.#watch.stop();
  }

  /** Throws `overloaded` when a new connection would take what is kept back now, whatever readiness still says. */
  mustHaveRoom(): void {
    const { seen } = this.#watch;
    if (seen === undefined || !usedUp(seen)) return;
    throw new CulvertError("overloaded", `this server has ${seen.open} of its ${seen.limit} files open: ${CURE}`);
  }

  #tell({ left, open, limit }: FilesSeen): void {
    if (left === "none") this.#deps.metrics.filesUsedUp();
    const [level, message] = SAID[left];
    this.#deps.strangers.tell(level, { open, limit }, message);
  }
}
