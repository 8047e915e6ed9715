import { QueueNode } from "../../basics/collections.ts";
import type { Reclaimable } from "../memory-account.ts";
import type { MemoryShare } from "../memory-pool.ts";

/** For `stalledMs`: the reader takes a byte now and then. */
export const MOVING = -1e9;

/** A connection that holds bytes of a share, and has not moved for a while. */
export class Held implements Reclaimable {
  held: number;
  readonly lastProgressAt: number;
  readonly longestPauseMs: number;
  readonly #share: Pick<MemoryShare, "hold" | "enter">;
  readonly #place = new QueueNode<Reclaimable>(this);

  /** `longestPauseMs`: the time for which it stood still before, and then moved again. */
  constructor(share: Pick<MemoryShare, "hold" | "enter">, held: number, stalledMs = 1_000, longestPauseMs = 0) {
    this.#share = share;
    this.held = held;
    this.longestPauseMs = longestPauseMs;
    this.lastProgressAt = performance.now() - stalledMs;
    share.hold(held);
    share.enter(this.#place);
  }

  get isOver(): boolean {
    return this.held === 0;
  }

  evict(): void {
    this.#share.hold(-this.held);
    this.held = 0;
    this.#place.leave();
  }
}
