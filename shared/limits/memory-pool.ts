import { PRESSURE, type Pressure } from "./hold.ts";
import { MemoryShare, RELIEVED_BELOW } from "./memory-share.ts";

/** Memory that could not be had at once is looked for again after so long, ms. */
const AGAIN_MS = 50;
/** Credit was refused so short a time ago that those who have much of it give some back, ms. */
const WANTED_MS = 1_000;
/**
 * Where the process takes too much, clusters give up what they hold down to this share of the limit. The rest of what it
 * takes is not theirs to give: malloc keeps what was freed for what comes next, and returns little of it.
 */
const LEFT_WHEN_SHORT = 1 / 8;

/**
 * What all tunnels of one process hold together, against `--memory-limit`: bytes that streams hold for slow readers, bytes
 * that links keep until they are acknowledged, and what waits in the sockets beside them. Each cluster has a share.
 *
 * Above the limit, the clusters that hold more than their part of it give up what has stopped moving (`relieve`). Only
 * where nothing has stopped are their new streams refused.
 *
 * Credit beyond initial windows is a promise to hold more, so it has to fit beside what is held.
 *
 * Called for every chunk, hence additions only: the holders are walked when memory is short.
 */
export class MemoryPool {
  readonly limit: number;
  readonly #shares = new Set<MemoryShare>();
  /** Shares that hold something. */
  #active = 0;
  #held = 0;
  #reserved = 0;
  #refused = 0;
  #ended = 0;
  #full = false;
  #roomWanted = false;
  #creditRefusedAt = Number.NEGATIVE_INFINITY;
  /** Bytes by which the process is above what it may have, whatever is counted here (`onProcess`). */
  #processExcess = 0;
  #processFull = false;
  #soon: NodeJS.Immediate | undefined;
  #later: NodeJS.Timeout | undefined;

  constructor(limit: number) {
    this.limit = limit;
  }

  /** The share of a cluster, from now on until it is closed. "": of those who have not said whose they are. */
  share(cluster: string): MemoryShare {
    const share: MemoryShare = new MemoryShare(cluster, this, () => this.#shares.delete(share));
    this.#shares.add(share);
    return share;
  }

  shares(): Iterable<MemoryShare> {
    return this.#shares;
  }

  /** Bytes held now. */
  get held(): number {
    return this.#held;
  }

  /** Credit that windows have beyond their initial size. */
  get reserved(): number {
    return this.#reserved;
  }

  /** Streams that were refused because nothing could be given up. */
  get refused(): number {
    return this.#refused;
  }

  /** Connections and links that were ended because they held memory and had stopped. */
  get ended(): number {
    return this.#ended;
  }

  /** The process takes more than it should, whatever is counted here. */
  get isProcessShort(): boolean {
    return this.#processExcess > 0;
  }

  /** Half of what may be held is. */
  get isTight(): boolean {
    return this.#held * 2 > this.limit || this.#processExcess > 0;
  }

  /** More is held than may be. */
  get isSpent(): boolean {
    return this.#held > this.limit || this.#processExcess > 0;
  }

  /** More is held than may be, and nothing of it has stopped. */
  get isFull(): boolean {
    return this.#full;
  }

  /** The process can take little more. */
  get isProcessFull(): boolean {
    return this.#processFull;
  }

  /** What each of those who hold something may take in all, with its connections, where the process is full. */
  get fairFootprint(): number {
    return this.limit / Math.max(1, this.#active);
  }

  /** Somebody has been refused credit a short time ago. */
  get isCreditWanted(): boolean {
    return performance.now() - this.#creditRefusedAt < WANTED_MS;
  }

  /** Bytes that each of those who hold something may hold. */
  get fairShare(): number {
    return this.#allowed / Math.max(1, this.#active);
  }

  get #allowed(): number {
    if (this.#processExcess === 0) return this.limit;
    return Math.max(this.limit * LEFT_WHEN_SHORT, Math.min(this.limit, this.#held - this.#processExcess));
  }

  /** One share more or less holds something. */
  countActive(delta: 1 | -1): void {
    this.#active += delta;
  }

  hold(delta: number): void {
    this.#held += delta;
    if (this.#held > this.limit) this.relieveSoon();
    else if (this.#processExcess === 0) this.#full = false;
  }

  /** Takes credit beyond an initial window, or says no. */
  reserve(bytes: number): boolean {
    if (this.isSpent || this.#held + this.#reserved + bytes > this.limit) {
      this.#creditRefusedAt = performance.now();
      return false;
    }
    this.#reserved += bytes;
    return true;
  }

  /** Credit was refused to one that has less than its part: others give up what has stopped, for the next time. */
  makeRoom(): void {
    this.#roomWanted = true;
    if (this.#soon === undefined) this.#later ??= setTimeout(this.#relieve, AGAIN_MS).unref();
  }

  release(bytes: number): void {
    this.#reserved -= bytes;
  }

  onRefused(): void {
    this.#refused++;
  }

  /** The process takes so many bytes more than it should; 0: it has enough. `isFull`: it can take little more. */
  onProcess(excess: number, isFull = false): void {
    this.#processExcess = excess;
    this.#processFull = isFull;
    if (excess > 0) {
      this.relieveSoon();
      return;
    }
    for (const share of this.#shares) share.forgetLeftBehind();
    if (this.#held <= this.limit) this.#full = false;
  }

  /** At the end of this turn of the event loop. */
  relieveSoon(): void {
    if (this.#later === undefined) this.#soon ??= setImmediate(this.#relieve);
  }

  readonly #relieve = (): void => {
    this.#forgetNextPass();
    const now = performance.now();
    if (this.isSpent || this.#roomWanted) this.#relieveAll(Math.min(this.#allowed, this.limit * RELIEVED_BELOW), now);
    for (const share of this.#shares) {
      if (share.isAboveCap) this.#ended += share.relieveToCap(now);
    }
    // Each connection that was ended may have asked for a pass of its own; this one has seen what they changed.
    this.#forgetNextPass();
    if (this.#full || [...this.#shares].some(({ isAboveCap }) => isAboveCap)) {
      this.#later = setTimeout(this.#relieve, AGAIN_MS).unref();
    }
  };

  #forgetNextPass(): void {
    clearImmediate(this.#soon);
    clearTimeout(this.#later);
    this.#soon = undefined;
    this.#later = undefined;
  }

  /** Readers that make progress in steps are left alone unless the process is short, or another cluster cannot get its part. */
  get #pressure(): Pressure {
    if (!this.isSpent) return PRESSURE.wanted;
    return this.isProcessShort || this.#roomWanted ? PRESSURE.last : PRESSURE.limit;
  }

  /** Who holds most goes first; nobody is taken more than what is beyond a fair part. */
  #relieveAll(target: number, now: number): void {
    const part = target / Math.max(1, this.#active);
    const pressure = this.#pressure;
    const above = [...this.#shares].filter(({ held }) => held > part).sort((one, other) => other.held - one.held);
    for (const share of above) {
      if (this.#held <= target) break;
      this.#ended += share.relieve(() => this.#held <= target || share.held <= part, now, pressure);
    }
    this.#roomWanted = false;
    this.#full = this.isSpent && this.#held > target;
    // What has been freed counts at once; whether that was enough is seen when the process is looked at next.
    this.#processExcess = this.#full ? this.#processExcess : 0;
  }

  /** What `/status` shows. */
  report(): Record<string, number | boolean> {
    return {
      limitBytes: this.limit,
      heldBytes: this.#held,
      reservedBytes: this.#reserved,
      refusing: this.#full || this.#processFull,
      refusedStreams: this.#refused,
      endedConnections: this.#ended,
    };
  }
}
