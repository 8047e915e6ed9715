import { Queue, type QueueNode } from "../basics/queue.ts";
import { type MemoryAccount, type MemoryHold, type MemoryHolder, PRESSURE, type Pressure, relieve } from "./hold.ts";
import type { MemoryPool } from "./memory-pool.ts";

/** What was given up goes down to this share of the limit, so that it does not swing with every chunk. */
export const RELIEVED_BELOW = 0.9;
/** A cluster whose connections hold more than its cap for so long, ms, gets no new ones: those that had stopped were ended. */
const REFUSED_AFTER_MS = 200;
/** Where they hold more than so many times its cap for so long, ms, it loses connections that still move, too. */
const OVERRUN = { times: 2, afterMs: 1_000 };

/** What the tunnels of one cluster hold, as a part of what all may hold together. */
export class MemoryShare implements MemoryAccount {
  readonly cluster: string;
  /** The account of its links. */
  readonly links: Pick<MemoryAccount, "isSpent" | "hold" | "enter">;
  readonly #pool: MemoryPool;
  readonly #onClosed: () => void;
  readonly #holders = new Queue<MemoryHolder>();
  readonly #linkHolders = new Queue<MemoryHolder>();
  #cap = Number.POSITIVE_INFINITY;
  #held = 0;
  /** Of what is held, bytes that links keep until they are acknowledged. */
  #heldByLinks = 0;
  #reserved = 0;
  #leftBehind = 0;
  /** What open connections take whether they hold something or not. */
  #connections = 0;
  /** Since when its connections have held more than its cap, or `OVERRUN.times` its cap, ms; `undefined`: they do not. */
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

  /** Bytes that this cluster may hold, whatever others leave (`limits.memory`). */
  get cap(): number {
    return this.#cap;
  }

  set cap(bytes: number) {
    this.#cap = bytes;
    if (this.isAboveCap) this.#pool.relieveSoon();
  }

  /** Connections and links together hold more than the cap: no window grows, and links get less room. */
  get isAboveCap(): boolean {
    return this.#held > this.#cap;
  }

  /**
   * Connections alone do. They are not slowed down, ended or refused for what a link keeps: its peer may have fallen
   * silent, or have no carrier now, and no connection could free that.
   */
  get isAboveCapByConnections(): boolean {
    return this.#heldByConnections > this.#cap;
  }

  get #heldByConnections(): number {
    return this.#held - this.#heldByLinks;
  }

  /** Connections have held more than the cap although those that had stopped were ended: no new one begins. */
  get isFullByCap(): boolean {
    if (this.#aboveSince === undefined || !this.isAboveCapByConnections) return false;
    return performance.now() - this.#aboveSince >= REFUSED_AFTER_MS;
  }

  get isTight(): boolean {
    return this.#held * 2 > this.#cap || (this.#pool.isTight && this.#isAbovePart(this.#held * 2));
  }

  get isSpent(): boolean {
    return this.isAboveCap || (this.#pool.isSpent && this.#isAbovePart(this.#held));
  }

  get isFull(): boolean {
    if (this.isFullByCap) return true;
    if (this.#pool.isFull && this.#isAbovePart(this.#held)) return true;
    return this.#pool.isProcessFull && this.#held + this.#connections > this.#pool.fairFootprint;
  }

  get mustShrink(): boolean {
    const committed = this.#held + this.#reserved;
    return committed > this.#cap || (this.#pool.isCreditWanted && this.#isAbovePart(committed));
  }

  #isAbovePart(bytes: number): boolean {
    return bytes > this.#pool.fairShare;
  }

  hold(delta: number): void {
    this.#held += delta;
    this.#pool.hold(delta);
    if (this.isAboveCap) this.#pool.relieveSoon();
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
      enter: (place: QueueNode<MemoryHolder>): void => this.#linkHolders.join(place),
    };
  }

  /** One connection more or less is open, which takes so many bytes of the process although it holds nothing. */
  onConnection(bytes: number): void {
    this.#connections += bytes;
  }

  leaveBehind(bytes: number): void {
    if (!this.#pool.isProcessShort) return;
    this.#leftBehind += bytes;
    this.hold(bytes);
  }

  /** The process has enough memory again. */
  forgetLeftBehind(): void {
    if (this.#leftBehind > 0) this.hold(-this.#leftBehind);
    this.#leftBehind = 0;
  }

  reserve(bytes: number): boolean {
    const wanted = this.#held + this.#reserved + bytes;
    if (wanted > this.#cap) return false;
    if (!this.#pool.reserve(bytes)) {
      if (!this.#isAbovePart(wanted)) this.#pool.makeRoom();
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

  /** Whether it holds something; a closed one is forgotten when it does not. */
  #onChanged(): void {
    const isActive = this.#held + this.#reserved > 0;
    if (isActive !== this.#isActive) this.#pool.countActive(isActive ? 1 : -1);
    this.#isActive = isActive;
    if (this.#closed && !isActive) this.#onClosed();
  }

  onRefused(): void {
    this.#pool.onRefused();
  }

  enter(place: QueueNode<MemoryHolder>): void {
    this.#holders.join(place);
  }

  /** Ends what may be taken from at this pressure until there is enough; returns how many connections and links. */
  relieve(isEnough: () => boolean, now: number, pressure: Pressure): number {
    return relieve(holdsOf(this.#holders, this.#linkHolders), isEnough, now, pressure);
  }

  /** Back to what its cap allows, as far as what has stopped can be ended; returns how many connections and links. */
  relieveToCap(now: number): number {
    const ended = this.isAboveCapByConnections ? this.#relieveConnections(now) : 0;
    if (!this.isAboveCap) return ended;
    const isEnough = () => this.#held <= this.#cap * RELIEVED_BELOW;
    return ended + relieve(holdsOf(this.#linkHolders), isEnough, now, PRESSURE.limit);
  }

  /**
   * Connections that still move end only where they stay far above the cap: a reader that takes a byte now and then would
   * hold as much as one that has stopped.
   */
  #relieveConnections(now: number): number {
    const most = this.#cap * OVERRUN.times;
    const relieveTo = (bytes: number, pressure: Pressure) =>
      relieve(holdsOf(this.#holders), () => this.#heldByConnections <= bytes, now, pressure);
    const ended = relieveTo(this.#cap * RELIEVED_BELOW, PRESSURE.limit);
    if (!this.isAboveCapByConnections) return ended;
    this.#aboveSince ??= now;
    this.#overrunSince = this.#heldByConnections > most ? (this.#overrunSince ?? now) : undefined;
    if (this.#overrunSince === undefined || now - this.#overrunSince < OVERRUN.afterMs) return ended;
    return ended + relieveTo(most, PRESSURE.moving);
  }

  #isBelowCap(): void {
    this.#aboveSince = undefined;
    this.#overrunSince = undefined;
  }

  /** Its cluster is not served any more; what is open still counts until it is over. */
  close(): void {
    this.#closed = true;
    this.#onChanged();
  }
}

function* holdsOf(...queues: readonly Queue<MemoryHolder>[]): Iterable<MemoryHold> {
  for (const queue of queues) for (const holder of queue) yield* holder.holds();
}
