import { Queue, type QueueNode } from "../basics/collections.ts";
import { type MemoryAccount, PRESSURE, type Pressure, type Reclaimable } from "./memory-account.ts";
import { CapOverrun, RECLAIM, RECLAIM_TO, type ReclaimLevel, ReclaimPasses, reclaim } from "./reclaim.ts";

/** For this time after a refusal of credit, ms, sessions that have much of it give some back. */
const WANTED_MS = 1_000;
/** Clusters keep this share of the limit when the process has too much: malloc returns little of what they free. */
const LEFT_WHEN_SHORT = 1 / 8;

/**
 * The memory that all connections of one process hold together, against `--memory-limit`: bytes that streams hold for
 * slow readers, bytes that links keep until they are acknowledged, and bytes that wait in the sockets beside them. Each
 * cluster has a share.
 *
 * Above the limit, memory is reclaimed from connections that have stopped, of the clusters that hold more than their
 * part. New streams of these clusters are refused only if no connection has stopped. Credit beyond initial windows is a
 * promise to hold more, so it has to fit beside what is held.
 *
 * `hold` is called for every chunk and only adds; holders are walked when memory is short.
 */
export class MemoryPool {
  readonly limit: number;
  held = 0;
  /** Credit that windows have beyond their initial size. */
  reserved = 0;
  /** Streams that were refused because nothing could be reclaimed. */
  refused = 0;
  /** Connections and links that were ended because they held memory and had stopped. */
  ended = 0;
  /** More is held than may be, and nothing of it has stopped. */
  #isFull = false;
  /** The process can take little more. */
  #isProcessFull = false;
  readonly #shares = new Set<MemoryShare>();
  /** The number of shares that hold something. */
  active = 0;
  #roomWanted = false;
  #creditRefusedAt = Number.NEGATIVE_INFINITY;
  /** Bytes by which the process is above its limit, whatever is counted here (`onProcess`). */
  #processExcess = 0;
  readonly #passes = new ReclaimPasses(() => this.#reclaim());

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

  get #isOver(): boolean {
    return this.held > this.limit || this.isProcessShort;
  }

  get pressure(): Pressure {
    if (this.#isFull) return PRESSURE.full;
    return this.#isOver ? PRESSURE.over : PRESSURE.none;
  }

  /** Whether the process is full, and a cluster that takes `footprint` bytes of it has more than its part. */
  isFullFor(footprint: number): boolean {
    return this.#isProcessFull && footprint > this.limit / Math.max(1, this.active);
  }

  /** The pressure on a cluster that holds `held` bytes. */
  pressureOn(held: number): Pressure {
    return held > this.fairShare ? this.pressure : PRESSURE.none;
  }

  /** Credit was refused lately, and a cluster that holds and promises `committed` bytes has more than its part. */
  wantsBack(committed: number): boolean {
    return committed > this.fairShare && performance.now() - this.#creditRefusedAt < WANTED_MS;
  }

  /** Bytes that each cluster which holds something may hold. */
  get fairShare(): number {
    return this.#allowed / Math.max(1, this.active);
  }

  get #allowed(): number {
    if (this.#processExcess === 0) return this.limit;
    return Math.max(this.limit * LEFT_WHEN_SHORT, Math.min(this.limit, this.held - this.#processExcess));
  }

  hold(delta: number): void {
    this.held += delta;
    if (this.held > this.limit) this.reclaimSoon();
    else if (!this.isProcessShort) this.#isFull = false;
  }

  /**
   * Takes credit beyond an initial window, for a cluster that would hold and promise `wanted` then. Returns false if
   * there is none; if the cluster has less than its part, memory is reclaimed from others for the next time.
   */
  reserve(bytes: number, wanted: number): boolean {
    if (!this.#isOver && this.held + this.reserved + bytes <= this.limit) {
      this.reserved += bytes;
      return true;
    }
    this.#creditRefusedAt = performance.now();
    if (wanted > this.fairShare) return false;
    this.#roomWanted = true;
    this.#passes.later();
    return false;
  }

  /** The process takes `excess` bytes more than it should; 0: it has enough. `isFull`: it can take little more. */
  onProcess(excess: number, isFull = false): void {
    this.#processExcess = excess;
    this.#isProcessFull = isFull;
    if (excess > 0) this.#passes.soon();
    else for (const share of this.#shares) share.forgetOrphaned();
    if (!this.#isOver) this.#isFull = false;
  }

  reclaimSoon(): void {
    this.#passes.soon();
  }

  /** Slow readers are spared unless the process is short, or another cluster cannot get its part. */
  get #level(): ReclaimLevel {
    if (!this.#isOver) return RECLAIM.longStalled;
    return this.isProcessShort || this.#roomWanted ? RECLAIM.slow : RECLAIM.stalled;
  }

  #reclaim(): void {
    const now = performance.now();
    if (this.#isOver || this.#roomWanted) this.#reclaimAll(Math.min(this.#allowed, this.limit * RECLAIM_TO), now);
    for (const share of this.#shares) this.ended += share.reclaimToCap(now);
    // Connections that were ended may have asked for another pass, but this one has seen what they changed.
    this.#passes.forget();
    if (this.#isFull || [...this.#shares].some(({ held, cap }) => held > cap)) this.#passes.later();
  }

  /** Clusters that hold most come first, and only what is beyond a fair part is taken from each. */
  #reclaimAll(target: number, now: number): void {
    const part = target / Math.max(1, this.active);
    const level = this.#level;
    const above = [...this.#shares].filter(({ held }) => held > part).sort((one, other) => other.held - one.held);
    for (const share of above) {
      if (this.held <= target) break;
      this.ended += share.reclaim(() => this.held <= target || share.held <= part, now, level);
    }
    this.#roomWanted = false;
    this.#isFull = this.#isOver && this.held > target;
    // Freed bytes count at once; the next look at the process shows whether they were enough.
    this.#processExcess = this.#isFull ? this.#processExcess : 0;
  }

  /** The numbers in `/status`. */
  report(): Record<string, number | boolean> {
    return {
      limitBytes: this.limit,
      heldBytes: this.held,
      reservedBytes: this.reserved,
      refusing: this.#isFull || this.#isProcessFull,
      refusedStreams: this.refused,
      endedConnections: this.ended,
    };
  }
}

/** The memory that the tunnels of one cluster hold, as a part of the pool. */
export class MemoryShare implements MemoryAccount {
  readonly cluster: string;
  /** Bytes held now. */
  held = 0;
  readonly links = new LinksAccount(this);
  readonly #pool: MemoryPool;
  readonly #onClosed: () => void;
  readonly #holders = new Queue<Reclaimable>();
  #cap = Number.POSITIVE_INFINITY;
  #reserved = 0;
  #orphaned = 0;
  /** Memory of open connections, even if they hold nothing. */
  #connections = 0;
  #overrun: CapOverrun | undefined;
  #isActive = false;
  #closed = false;

  constructor(cluster: string, pool: MemoryPool, onClosed: () => void) {
    this.cluster = cluster;
    this.#pool = pool;
    this.#onClosed = onClosed;
  }

  /** Bytes that this cluster may hold, even if others leave more (`limits.memory`). */
  get cap(): number {
    return this.#cap;
  }

  set cap(bytes: number) {
    this.#cap = bytes;
    if (this.held > bytes) this.#pool.reclaimSoon();
  }

  get pressure(): Pressure {
    return this.#pool.isFullFor(this.held + this.#connections) ? PRESSURE.full : this.pressureOfHeld;
  }

  /** Links get less room for what is held alone: that they keep less frees nothing of what open connections take. */
  get pressureOfHeld(): Pressure {
    return Math.max(this.capPressure, this.#pool.pressureOn(this.held)) as Pressure;
  }

  /**
   * The pressure from the cluster's own cap. Bytes that a link keeps do not slow down, end or refuse connections: the
   * link's peer may be silent or have no carrier now, and no connection could free these bytes.
   */
  get capPressure(): Pressure {
    if (this.held <= this.#cap) return PRESSURE.none;
    if (this.#heldByConnections <= this.#cap) return PRESSURE.over;
    return this.#overrun?.lasts ? PRESSURE.full : PRESSURE.slowed;
  }

  get #heldByConnections(): number {
    return this.held - this.links.held;
  }

  get mustShrink(): boolean {
    const committed = this.held + this.#reserved;
    return committed > this.#cap || this.#pool.wantsBack(committed);
  }

  hold(delta: number): void {
    this.held += delta;
    this.#pool.hold(delta);
    if (this.held > this.#cap) this.#pool.reclaimSoon();
    if (this.#overrun !== undefined && this.#heldByConnections <= this.#cap) this.#overrun = undefined;
    this.#onChanged();
  }

  /** A connection was opened that takes this number of bytes of the process, or closed if the number is negative. */
  onConnection(bytes: number): void {
    this.#connections += bytes;
  }

  countOrphaned(bytes: number): void {
    if (!this.#pool.isProcessShort) return;
    this.#orphaned += bytes;
    this.hold(bytes);
  }

  /** The process has enough memory again. */
  forgetOrphaned(): void {
    if (this.#orphaned > 0) this.hold(-this.#orphaned);
    this.#orphaned = 0;
  }

  reserve(bytes: number): boolean {
    const wanted = this.held + this.#reserved + bytes;
    if (wanted > this.#cap || !this.#pool.reserve(bytes, wanted)) return false;
    this.#reserved += bytes;
    this.#onChanged();
    return true;
  }

  release(bytes: number): void {
    this.#reserved -= bytes;
    this.#pool.reserved -= bytes;
    this.#onChanged();
  }

  /** Counts whether it holds something; a closed share is forgotten when it does not. */
  #onChanged(): void {
    const isActive = this.held + this.#reserved > 0;
    if (isActive !== this.#isActive) this.#pool.active += isActive ? 1 : -1;
    this.#isActive = isActive;
    if (this.#closed && !isActive) this.#onClosed();
  }

  onRefused(): void {
    this.#pool.refused++;
  }

  enter(node: QueueNode<Reclaimable>): void {
    this.#holders.join(node);
  }

  /** Evicts connections and links up to this level until there is enough; returns their number. */
  reclaim(isEnough: () => boolean, now: number, level: ReclaimLevel): number {
    return reclaim([...this.#holders, ...this.links.holders], isEnough, now, level);
  }

  /** Evicts the connection that holds most, even if it moves; returns how many bytes that has freed. */
  evictLargest(): number {
    let largest: Reclaimable | undefined;
    for (const holder of this.#holders) if (holder.held > (largest?.held ?? 0)) largest = holder;
    if (largest === undefined) return 0;
    const before = this.held;
    largest.evict();
    this.#pool.ended++;
    return before - this.held;
  }

  /** Reclaims what the cap does not allow, from what has stopped; returns how many connections and links were ended. */
  reclaimToCap(now: number): number {
    this.#overrun = this.#heldByConnections > this.#cap ? (this.#overrun ?? new CapOverrun(now)) : undefined;
    if (this.held <= this.#cap) return 0;
    const ended = this.#overrun?.reclaim(this.#holders, () => this.#heldByConnections, this.#cap, now) ?? 0;
    if (this.held <= this.#cap) return ended;
    const isEnough = () => this.held <= this.#cap * RECLAIM_TO;
    return ended + reclaim(this.links.holders, isEnough, now, RECLAIM.stalled);
  }

  /** The cluster is not served any more; what is open counts until it ends. */
  close(): void {
    this.#closed = true;
    this.#onChanged();
  }
}

/** The bytes that the links of one cluster keep until they are acknowledged, as a part of its share. */
class LinksAccount {
  /** Bytes held now. */
  held = 0;
  readonly holders = new Queue<Reclaimable>();
  readonly #share: MemoryShare;

  constructor(share: MemoryShare) {
    this.#share = share;
  }

  get pressure(): Pressure {
    return this.#share.pressureOfHeld;
  }

  hold(delta: number): void {
    this.held += delta;
    this.#share.hold(delta);
  }

  enter(node: QueueNode<Reclaimable>): void {
    this.holders.join(node);
  }
}
