import { Queue, type QueueNode } from "../basics/collections.ts";
import {
  type MemoryAccount,
  type MemoryHolder,
  RECLAIM,
  type Reclaimable,
  type ReclaimLevel,
  reclaim,
} from "./memory-account.ts";
import type { MemoryPool } from "./memory-pool.ts";

/** Reclaiming goes down to this share of the limit, so that it does not begin again with every chunk. */
export const RECLAIM_TO = 0.9;
/** A cluster whose connections hold more than its cap for so long, ms, gets no new ones. */
const REFUSED_AFTER_MS = 200;
/** One whose connections hold so many times its cap for so long, ms, loses connections that still move, too. */
const OVERRUN = { times: 2, afterMs: 1_000 };

/**
 * Bytes of the process that an open connection takes while it carries nothing, by its kind: its socket, what reads from
 * it, and a stream or a WebSocket; measured.
 */
export const CONNECTION_BYTES = { unix: 26 * 1024, tls: 70 * 1024 } as const;

/** What the tunnels of one cluster hold, as a part of the pool. */
export class MemoryShare implements MemoryAccount {
  readonly cluster: string;
  readonly links: Pick<MemoryAccount, "isSpent" | "hold" | "enter">;
  readonly #pool: MemoryPool;
  readonly #onClosed: () => void;
  readonly #holders = new Queue<MemoryHolder>();
  readonly #linkHolders = new Queue<MemoryHolder>();
  #cap = Number.POSITIVE_INFINITY;
  #held = 0;
  /** The part of `#held` that links keep until it is acknowledged. */
  #heldByLinks = 0;
  #reserved = 0;
  #orphaned = 0;
  /** What open connections take even if they hold nothing. */
  #connections = 0;
  /**
   * Since when its connections have held more than its cap, or `OVERRUN.times` its cap, ms; `undefined`: they do not.
   */
  #aboveSince: number | undefined;
  #overrunSince: number | undefined;
  #isActive = false;
  #closed = false;

  constructor(cluster: string, pool: MemoryPool, onClosed: () => void) {
    this.cluster = cluster;
    this.#pool = pool;
    this.#onClosed = onClosed;
    this.links = this.#accountOfLinks();
  }

  /** Bytes held now. */
  get held(): number {
    return this.#held;
  }

  /** Bytes that this cluster may hold, even if others leave more (`limits.memory`). */
  get cap(): number {
    return this.#cap;
  }

  set cap(bytes: number) {
    this.#cap = bytes;
    if (this.isAboveCap) this.#pool.reclaimSoon();
  }

  /** Connections and links together hold more than the cap: no window grows, and links get less room. */
  get isAboveCap(): boolean {
    return this.#held > this.#cap;
  }

  /**
   * Connections alone hold more than the cap. They are not ended or refused for what a link keeps: its peer may be
   * silent or have no carrier now, and no connection could free that.
   */
  get isAboveCapByConnections(): boolean {
    return this.#heldByConnections > this.#cap;
  }

  get #heldByConnections(): number {
    return this.#held - this.#heldByLinks;
  }

  /** Connections still hold more than the cap after those that had stopped were ended: no new one begins. */
  get isFullByCap(): boolean {
    if (this.#aboveSince === undefined || !this.isAboveCapByConnections) return false;
    return performance.now() - this.#aboveSince >= REFUSED_AFTER_MS;
  }

  get isTight(): boolean {
    return this.#held * 2 > this.#cap || (this.#pool.isTight && this.#exceedsPart(this.#held * 2));
  }

  get isSpent(): boolean {
    return this.isAboveCap || (this.#pool.isSpent && this.#exceedsPart(this.#held));
  }

  get isFull(): boolean {
    if (this.isFullByCap) return true;
    if (this.#pool.isFull && this.#exceedsPart(this.#held)) return true;
    return this.#pool.isProcessFull && this.#held + this.#connections > this.#pool.fairFootprint;
  }

  get mustShrink(): boolean {
    const committed = this.#held + this.#reserved;
    return committed > this.#cap || (this.#pool.isCreditWanted && this.#exceedsPart(committed));
  }

  #exceedsPart(bytes: number): boolean {
    return bytes > this.#pool.fairShare;
  }

  hold(delta: number): void {
    this.#held += delta;
    this.#pool.hold(delta);
    if (this.isAboveCap) this.#pool.reclaimSoon();
    if (this.#aboveSince !== undefined && !this.isAboveCapByConnections) this.#isBelowCap();
    this.#onChanged();
  }

  #accountOfLinks() {
    const share = this;
    return {
      get isSpent() {
        return share.isSpent;
      },
      hold: (delta: number): void => {
        this.#heldByLinks += delta;
        this.hold(delta);
      },
      enter: (node: QueueNode<MemoryHolder>): void => this.#linkHolders.join(node),
    };
  }

  /** A connection that takes so many bytes of the process was opened, or closed if negative. */
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
    const wanted = this.#held + this.#reserved + bytes;
    if (wanted > this.#cap) return false;
    if (!this.#pool.reserve(bytes)) {
      if (!this.#exceedsPart(wanted)) this.#pool.makeRoom();
      return false;
    }
    this.#reserved += bytes;
    this.#onChanged();
    return true;
  }

  release(bytes: number): void {
    this.#reserved -= bytes;
    this.#pool.release(bytes);
    this.#onChanged();
  }

  /** Counts whether it holds something; a closed share is forgotten when it does not. */
  #onChanged(): void {
    const isActive = this.#held + this.#reserved > 0;
    if (isActive !== this.#isActive) this.#pool.countActive(isActive ? 1 : -1);
    this.#isActive = isActive;
    if (this.#closed && !isActive) this.#onClosed();
  }

  onRefused(): void {
    this.#pool.onRefused();
  }

  enter(node: QueueNode<MemoryHolder>): void {
    this.#holders.join(node);
  }

  /** Evicts connections and links up to this level until there is enough; returns their number. */
  reclaim(isEnough: () => boolean, now: number, level: ReclaimLevel): number {
    return reclaim(holdsOf(this.#holders, this.#linkHolders), isEnough, now, level);
  }

  /** Reclaims what the cap does not allow, from what has stopped; returns how many connections and links were ended. */
  reclaimToCap(now: number): number {
    const ended = this.isAboveCapByConnections ? this.#reclaimConnections(now) : 0;
    if (!this.isAboveCap) return ended;
    const isEnough = () => this.#held <= this.#cap * RECLAIM_TO;
    return ended + reclaim(holdsOf(this.#linkHolders), isEnough, now, RECLAIM.stalled);
  }

  /**
   * Connections that still move are ended only when the cluster stays far above the cap: readers that take a byte now
   * and then would hold as much as those that have stopped.
   */
  #reclaimConnections(now: number): number {
    const most = this.#cap * OVERRUN.times;
    const reclaimTo = (bytes: number, level: ReclaimLevel) =>
      reclaim(holdsOf(this.#holders), () => this.#heldByConnections <= bytes, now, level);
    const ended = reclaimTo(this.#cap * RECLAIM_TO, RECLAIM.stalled);
    if (!this.isAboveCapByConnections) return ended;
    this.#aboveSince ??= now;
    this.#overrunSince = this.#heldByConnections > most ? (this.#overrunSince ?? now) : undefined;
    if (this.#overrunSince === undefined || now - this.#overrunSince < OVERRUN.afterMs) return ended;
    return ended + reclaimTo(most, RECLAIM.moving);
  }

  #isBelowCap(): void {
    this.#aboveSince = undefined;
    this.#overrunSince = undefined;
  }

  /** The cluster is not served any more; what is open counts until it ends. */
  close(): void {
    this.#closed = true;
    this.#onChanged();
  }
}

function* holdsOf(...queues: readonly Queue<MemoryHolder>[]): Iterable<Reclaimable> {
  for (const queue of queues) for (const holder of queue) yield* holder.reclaimables();
}
