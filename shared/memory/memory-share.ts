import { type Place, Queue } from "../queue.ts";
import { type MemoryAccount, type MemoryHold, type MemoryHolder, PRESSURE, type Pressure, relieve } from "./hold.ts";
import type { MemoryPool } from "./memory-pool.ts";

/** What was given up goes down to this share of the limit, so that it does not swing with every chunk. */
export const RELIEVED_BELOW = 0.9;
/** A cluster above its cap for so long, ms, gets nothing new: what has stopped has been ended, and the rest still moves. */
const REFUSED_AFTER_MS = 200;
/** Above so many times its cap for so long, ms, it loses connections that still move, too. */
const OVERRUN = { times: 2, afterMs: 1_000 };

/** What the tunnels of one cluster hold, as a part of what all may hold together. */
export class MemoryShare implements MemoryAccount {
  readonly cluster: string;
  readonly #pool: MemoryPool;
  readonly #onClosed: () => void;
  readonly #holders = new Queue<MemoryHolder>();
  #cap = Number.POSITIVE_INFINITY;
  #held = 0;
  #reserved = 0;
  #leftBehind = 0;
  /** What open connections take whether they hold something or not. */
  #connections = 0;
  /** Since when it has been above its cap, or above `OVERRUN.times` its cap, ms; `undefined`: it is not. */
  #aboveSince: number | undefined;
  #overrunSince: number | undefined;
  #isActive = false;
  #closed = false;

  constructor(cluster: string, pool: MemoryPool, onClosed: () => void) {
    this.cluster = cluster;
    this.#pool = pool;
    this.#onClosed = onClosed;
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

  get isAboveCap(): boolean {
    return this.#held > this.#cap;
  }

  /** It has been above its cap although everything that had stopped was ended: it gets nothing new. */
  get isFullByCap(): boolean {
    if (this.#aboveSince === undefined || !this.isAboveCap) return false;
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
    else if (this.#aboveSince !== undefined) this.#isBelowCap();
    this.#onChanged();
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

  enter(place: Place<MemoryHolder>): void {
    this.#holders.join(place);
  }

  /** Ends what may be taken from at this pressure until there is enough; returns how many connections and links. */
  relieve(isEnough: () => boolean, now: number, pressure: Pressure): number {
    return relieve(this.#holds(), isEnough, now, pressure);
  }

  /**
   * Back to what its cap allows, as far as what has stopped can be ended. What still moves ends only where the cluster
   * stays far above its cap: a reader that takes a byte now and then would hold as much as one that has stopped.
   */
  relieveToCap(now: number): number {
    const overrun = this.#cap * OVERRUN.times;
    const ended = this.relieve(() => this.#held <= this.#cap * RELIEVED_BELOW, now, PRESSURE.limit);
    if (!this.isAboveCap) return ended;
    this.#aboveSince ??= now;
    this.#overrunSince = this.#held > overrun ? (this.#overrunSince ?? now) : undefined;
    if (this.#overrunSince === undefined || now - this.#overrunSince < OVERRUN.afterMs) return ended;
    return ended + this.relieve(() => this.#held <= overrun, now, PRESSURE.moving);
  }

  #isBelowCap(): void {
    this.#aboveSince = undefined;
    this.#overrunSince = undefined;
  }

  *#holds(): Iterable<MemoryHold> {
    for (const holder of this.#holders) yield* holder.holds();
  }

  /** Its cluster is not served any more; what is open still counts until it is over. */
  close(): void {
    this.#closed = true;
    this.#onChanged();
  }
}
