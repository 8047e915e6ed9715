import { type Place, Queue } from "../queue.ts";
import { type MemoryAccount, type MemoryHold, type MemoryHolder, type Pressure, relieve } from "./hold.ts";
import type { MemoryPool } from "./memory-pool.ts";

/** What the tunnels of one cluster hold, as a part of what all may hold together. */
export class MemoryShare implements MemoryAccount {
  readonly cluster: string;
  /** Bytes that this cluster may hold, whatever others leave (`limits.memory`). */
  cap = Number.POSITIVE_INFINITY;
  readonly #pool: MemoryPool;
  readonly #onClosed: () => void;
  readonly #holders = new Queue<MemoryHolder>();
  #held = 0;
  #reserved = 0;
  #leftBehind = 0;
  /** What open connections take whether they hold something or not. */
  #connections = 0;
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

  get isAboveCap(): boolean {
    return this.#held > this.cap;
  }

  get isTight(): boolean {
    return this.#held * 2 > this.cap || (this.#pool.isTight && this.#isAbovePart(this.#held * 2));
  }

  get isSpent(): boolean {
    return this.isAboveCap || (this.#pool.isSpent && this.#isAbovePart(this.#held));
  }

  get isFull(): boolean {
    if (this.#pool.isFull && this.#isAbovePart(this.#held)) return true;
    return this.#pool.isProcessFull && this.#held + this.#connections > this.#pool.fairFootprint;
  }

  get mustShrink(): boolean {
    return this.#pool.isCreditWanted && this.#isAbovePart(this.#held + this.#reserved);
  }

  #isAbovePart(bytes: number): boolean {
    return bytes > this.#pool.fairShare;
  }

  hold(delta: number): void {
    this.#held += delta;
    this.#pool.hold(delta);
    if (this.isAboveCap) this.#pool.relieveSoon();
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
    if (wanted > this.cap) return false;
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

  /** Ends what has stopped moving until there is enough; returns how many connections and links that were. */
  relieve(isEnough: () => boolean, now: number, pressure: Pressure): number {
    return relieve(this.#holds(), isEnough, now, pressure);
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
