import { type MemoryAccount, UNBOUNDED } from "../limits/memory-account.ts";
import { IN_FLIGHT_FLOOR, InFlight } from "./in-flight.ts";
import { Replay } from "./replay.ts";

/** What the links of a tenant keep together, against a bound that is none of one link's. */
export interface LinkPool extends Pick<MemoryAccount, "isSpent" | "hold" | "enter"> {}

/**
 * The direction of a link in which we send: what is kept, how far it has been given to a carrier, and how far the peer has
 * it. Knows no carrier.
 *
 * ```
 *   acked ───────────── sent ─────────────── end
 *     the present carrier      nobody has had
 *     has been given it        it on this carrier
 * ```
 */
export class Outgoing {
  readonly #pool: LinkPool;
  readonly #replay = new Replay();
  readonly #inFlight: InFlight;
  /** The present carrier has been given everything before this offset. */
  #sent = 0;
  /** Some carrier has: what the peer may have received, whichever it came on. */
  #everSent = 0;
  /** What the peer says it has received. */
  #peerHas = 0;

  /** `most`: bytes kept, and so the most that may be unacknowledged. */
  constructor(most: number, pool: LinkPool = UNBOUNDED) {
    this.#pool = pool;
    this.#inFlight = new InFlight(most);
  }

  /** Bytes kept until the peer acknowledges them. */
  get unacknowledged(): number {
    return this.#replay.bytes;
  }

  /** The present carrier has been given all there is. */
  get isAllSent(): boolean {
    return this.#sent === this.#replay.end;
  }

  /** The offsets at which sending can begin again: the peer cannot have less than it has said, nor what nobody has sent. */
  get resumable(): { readonly from: number; readonly to: number } {
    return { from: this.#peerHas, to: this.#everSent };
  }

  room(): number {
    if (!this.isAllSent) return 0;
    const { bytes } = this.#replay;
    const room = this.#inFlight.bound - bytes;
    if (room <= 0) this.#inFlight.onLimited();
    // A pool that is used up leaves the least with which a link still moves.
    // Held back by the pool is not held back by the bound, which must learn nothing from it.
    return this.#pool.isSpent ? Math.min(room, IN_FLIGHT_FLOOR - bytes) : room;
  }

  append(batch: readonly Buffer[], byteLength: number): void {
    this.#replay.append(batch, byteLength);
    this.#pool.hold(byteLength);
  }

  /** So much more has been given to the present carrier. */
  advance(byteLength: number): void {
    this.#sent += byteLength;
    if (this.#sent > this.#everSent) this.#everSent = this.#sent;
    this.#inFlight.onSent(this.#sent, performance.now());
  }

  /** Takes what the present carrier is to be given next: at least `least` bytes, or all that there are. */
  next(least: number): { readonly buffers: readonly Buffer[]; readonly byteLength: number } {
    const next = this.#replay.read(this.#sent, least);
    this.advance(next.byteLength);
    return next;
  }

  /** A new carrier begins at this offset, a `resumable` one: it is what the peer has. */
  restart(offset: number): void {
    this.#peerHas = offset;
    this.#sent = offset;
    this.letGo();
    this.#inFlight.reset(offset);
  }

  /** The peer has everything before `received`; false: that was known. */
  acknowledge(received: number): boolean {
    if (received <= this.#peerHas) return false;
    this.#peerHas = received;
    this.letGo();
    this.#inFlight.onAck(this.#replay.acked, performance.now());
    return true;
  }

  /**
   * What the peer has is not kept, but what it has from an older carrier only is still sent on the present one: there
   * every byte has its place.
   */
  letGo(): void {
    const upTo = Math.min(this.#peerHas, this.#sent);
    if (upTo <= this.#replay.acked) return;
    this.#pool.hold(this.#replay.acked - upTo);
    this.#replay.acknowledge(upTo);
  }

  clear(): void {
    this.#pool.hold(-this.#replay.bytes);
    this.#replay.clear();
  }
}
