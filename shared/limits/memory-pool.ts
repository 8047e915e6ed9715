import { RECLAIM, type ReclaimLevel } from "./memory-account.ts";
import { MemoryShare, RECLAIM_TO } from "./memory-share.ts";

/** When not enough could be reclaimed, it is tried again after so long, ms. */
const AGAIN_MS = 50;
/** For so long after a refusal of credit, ms, sessions that have much of it give some back. */
const WANTED_MS = 1_000;
/**
 * When the process takes too much memory, clusters keep at least this share of the limit. The rest is not theirs to
 * give back: malloc keeps what was freed for later and returns little of it.
 */
const LEFT_WHEN_SHORT = 1 / 8;

/**
 * What all tunnels of one process hold together, against `--memory-limit`: bytes that streams hold for slow readers,
 * bytes that links keep until they are acknowledged, and what waits in the sockets beside them. Each cluster has a
 * share.
 *
 * Above the limit, memory is reclaimed from connections that have stopped, of the clusters that hold more than their
 * part. New streams of those are refused only if nothing has stopped.
 *
 * Credit beyond initial windows is a promise to hold more, so it has to fit beside what is held.
 *
 * `hold` is called for every chunk and only adds; holders are walked when memory is short.
 */
export class MemoryPool {
  readonly limit: number;
  /** Bytes held now. */
  held = 0;
  /** Credit that windows have beyond their initial size. */
  reserved = 0;
  /** Streams that were refused because nothing could be reclaimed. */
  refused = 0;
  /** Connections and links that were ended because they held memory and had stopped. */
  ended = 0;
  /** More is held than may be, and nothing of it has stopped. */
  isFull = false;
  /** The process can take little more. */
  isProcessFull = false;
  readonly #shares = new Set<MemoryShare>();
  /** Shares that hold something. */
  #active = 0;
  #roomWanted = false;
  #creditRefusedAt = Number.NEGATIVE_INFINITY;
  /** Bytes by which the process is above what it may have, whatever is counted here (`onProcess`). */
  #processExcess = 0;
  #soon: NodeJS.Immediate | undefined;
  #later: NodeJS.Timeout | undefined;

  constructor(limit: number) {
    this.limit = limit;
  }

  /** Opens the share of a cluster; "" is for peers that have not been authenticated yet. */
  share(cluster: string): MemoryShare {
    const share: MemoryShare = new MemoryShare(cluster, this, () => this.#shares.delete(share));
    this.#shares.add(share);
    return share;
  }

  shares(): Iterable<MemoryShare> {
    return this.#shares;
  }

  /** The process takes more than it should, whatever is counted here. */
  get isProcessShort(): boolean {
    return this.#processExcess > 0;
  }

  /** More than half of the limit is held. */
  get isTight(): boolean {
    return this.held * 2 > this.limit || this.#processExcess > 0;
  }

  /** More is held than may be. */
  get isSpent(): boolean {
    return this.held > this.limit || this.#processExcess > 0;
  }

  /** The bytes that a cluster which holds something may take in all, with its connections, when the process is full. */
  get fairFootprint(): number {
    return this.limit / Math.max(1, this.#active);
  }

  /** Credit was refused a short time ago. */
  get isCreditWanted(): boolean {
    return performance.now() - this.#creditRefusedAt < WANTED_MS;
  }

  /** Bytes that each cluster which holds something may hold. */
  get fairShare(): number {
    return this.#allowed / Math.max(1, this.#active);
  }

  get #allowed(): number {
    if (this.#processExcess === 0) return this.limit;
    return Math.max(this.limit * LEFT_WHEN_SHORT, Math.min(this.limit, this.held - this.#processExcess));
  }

  /** The number of shares that hold something has changed. */
  countActive(delta: 1 | -1): void {
    this.#active += delta;
  }

  hold(delta: number): void {
    this.held += delta;
    if (this.held > this.limit) this.reclaimSoon();
    else if (this.#processExcess === 0) this.isFull = false;
  }

  /** Takes credit beyond an initial window. Returns false if there is none. */
  reserve(bytes: number): boolean {
    if (this.isSpent || this.held + this.reserved + bytes > this.limit) {
      this.#creditRefusedAt = performance.now();
      return false;
    }
    this.reserved += bytes;
    return true;
  }

  /**
   * Credit was refused to a cluster that has less than its part: memory is reclaimed from others, for the next time.
   */
  makeRoom(): void {
    this.#roomWanted = true;
    if (this.#soon === undefined) this.#later ??= setTimeout(this.#reclaim, AGAIN_MS).unref();
  }

  release(bytes: number): void {
    this.reserved -= bytes;
  }

  onRefused(): void {
    this.refused++;
  }

  /** The process takes `excess` bytes more than it should; 0: it has enough. `isFull`: it can take little more. */
  onProcess(excess: number, isFull = false): void {
    this.#processExcess = excess;
    this.isProcessFull = isFull;
    if (excess > 0) {
      this.reclaimSoon();
      return;
    }
    for (const share of this.#shares) share.forgetOrphaned();
    if (this.held <= this.limit) this.isFull = false;
  }

  /** At the end of this turn of the event loop. */
  reclaimSoon(): void {
    if (this.#later === undefined) this.#soon ??= setImmediate(this.#reclaim);
  }

  readonly #reclaim = (): void => {
    this.#forgetNextPass();
    const now = performance.now();
    if (this.isSpent || this.#roomWanted) this.#reclaimAll(Math.min(this.#allowed, this.limit * RECLAIM_TO), now);
    for (const share of this.#shares) {
      if (share.isAboveCap) this.ended += share.reclaimToCap(now);
    }
    // Connections that were ended may have asked for another pass, but this one has seen what they changed.
    this.#forgetNextPass();
    if (this.isFull || [...this.#shares].some(({ isAboveCap }) => isAboveCap)) {
      this.#later = setTimeout(this.#reclaim, AGAIN_MS).unref();
    }
  };

  #forgetNextPass(): void {
    clearImmediate(this.#soon);
    clearTimeout(this.#later);
    this.#soon = undefined;
    this.#later = undefined;
  }

  /** Slow readers are spared unless the process is short, or another cluster cannot get its part. */
  get #level(): ReclaimLevel {
    if (!this.isSpent) return RECLAIM.longStalled;
    return this.isProcessShort || this.#roomWanted ? RECLAIM.slow : RECLAIM.stalled;
  }

  /** Clusters that hold most come first, and only what is beyond a fair part is taken from each. */
  #reclaimAll(target: number, now: number): void {
    const part = target / Math.max(1, this.#active);
    const level = this.#level;
    const above = [...this.#shares].filter(({ held }) => held > part).sort((one, other) => other.held - one.held);
    for (const share of above) {
      if (this.held <= target) break;
      this.ended += share.reclaim(() => this.held <= target || share.held <= part, now, level);
    }
    this.#roomWanted = false;
    this.isFull = this.isSpent && this.held > target;
    // What was freed counts at once; the next look at the process shows whether it was enough.
    this.#processExcess = this.isFull ? this.#processExcess : 0;
  }

  /** What `/status` shows. */
  report(): Record<string, number | boolean> {
    return {
      limitBytes: this.limit,
      heldBytes: this.held,
      reservedBytes: this.reserved,
      refusing: this.isFull || this.isProcessFull,
      refusedStreams: this.refused,
      endedConnections: this.ended,
    };
  }
}
