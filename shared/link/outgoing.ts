import { compact } from "../basics/bytes.ts";
import { type LinkPool, PRESSURE, UNBOUNDED } from "../limits/memory-account.ts";
import { CloseCode, LinkRefused } from "../wire/handshake.ts";
import { IN_FLIGHT_FLOOR, InFlight } from "./acks.ts";
import type { LinkCarrier } from "./carrier.ts";
import type { LinkPace } from "./link-events.ts";

/** Bytes that the carrier has not taken stay below this while bytes are sent once more, so that pings go between. */
const REPLAY_AT_ONCE = 128 * 1024;

/**
 * The direction of a link in which we send: what is kept, how far a carrier was given it, and how far the peer has it.
 *
 * ```
 *   acked ───────────── sent ─────────────── end
 *     given to the             given to no carrier,
 *     present carrier          or to an older one only
 * ```
 */
export class Outgoing {
  readonly #pool: LinkPool;
  readonly #replay = new Replay();
  readonly #most: number;
  #inFlight: InFlight;
  /** The present carrier. */
  carrier: LinkCarrier | undefined;
  #isEnding = false;
  /** Everything before this offset was given to the present carrier. */
  #sent = 0;
  /** Everything before this offset was given to some carrier, so the peer may have received it. */
  everSent = 0;
  /** The offset up to which the peer says that it has received. */
  peerHas = 0;

  /** `most`: maximum of bytes that are kept, and so of bytes that are unacknowledged. */
  constructor(carrier: LinkCarrier, most: number, pool: LinkPool = UNBOUNDED) {
    this.carrier = carrier;
    this.#pool = pool;
    this.#most = most;
    this.#inFlight = new InFlight(most, 0);
  }

  /** The end waits for an acknowledgement of what was sent before it. */
  get isEndUnacknowledged(): boolean {
    return this.#isEnding && this.unacknowledged > 0;
  }

  get unacknowledged(): number {
    return this.#replay.bytes;
  }

  get pace(): Omit<LinkPace, "receivedPerSecond"> {
    const { roundMs, sentPerSecond } = this.#inFlight;
    return { roundMs, sentPerSecond };
  }

  /** Whether everything was given to the present carrier. */
  get isAllSent(): boolean {
    return this.#sent === this.#replay.end;
  }

  room(): number {
    if (this.carrier === undefined || !this.isAllSent) return 0;
    const { bytes } = this.#replay;
    const room = this.#inFlight.bound - bytes;
    if (room <= 0) this.#inFlight.onLimited();
    // A pool that is used up leaves a link the least with which it still moves. The bound must learn nothing from that.
    return this.#pool.pressure >= PRESSURE.over ? Math.min(room, IN_FLIGHT_FLOOR - bytes) : room;
  }

  write(batch: readonly Buffer[], byteLength: number): void {
    const carrier = this.isAllSent ? this.carrier : undefined;
    this.#replay.append(batch, byteLength);
    this.#pool.hold(byteLength);
    if (carrier === undefined) return;
    this.#advance(byteLength);
    carrier.write(batch, byteLength);
  }

  /** All that was written is still delivered; then the carrier that has delivered it ends. */
  end(): void {
    this.#isEnding = true;
    if (this.isAllSent) this.carrier?.end();
  }

  /** `byteLength` more bytes were given to the present carrier. */
  #advance(byteLength: number): void {
    this.#sent += byteLength;
    if (this.#sent > this.everSent) this.everSent = this.#sent;
    this.#inFlight.onSent(this.#sent, performance.now());
  }

  /**
   * Gives the carrier as many bytes as it takes of those that are sent once more. Returns whether new bytes can follow.
   */
  replayMore(): boolean {
    const carrier = this.carrier;
    while (carrier !== undefined && !this.isAllSent && carrier.pendingBytes < REPLAY_AT_ONCE) {
      const { buffers, byteLength } = this.#replay.read(this.#sent, REPLAY_AT_ONCE);
      this.#advance(byteLength);
      carrier.write(buffers, byteLength);
      if (this.carrier !== carrier) return false;
    }
    this.#release();
    if (carrier === undefined || !this.isAllSent) return false;
    if (this.#isEnding) carrier.end();
    return !this.#isEnding;
  }

  /** Whether sending can begin again there: not before what the peer has acknowledged, nor after what was sent. */
  canRestart(offset: number): boolean {
    return offset >= this.peerHas && offset <= this.everSent;
  }

  /** Why a new carrier cannot begin at this offset. */
  refusal(offset: number): LinkRefused {
    return new LinkRefused({
      closeCode: CloseCode.badOffset,
      reason: `the link cannot go on at byte ${offset}: ${this.peerHas} to ${this.everSent} are kept`,
    });
  }

  /** A new carrier begins at this offset, which is what the peer has. See `canRestart`. `replayMore` comes next. */
  restart(carrier: LinkCarrier, offset: number): void {
    this.carrier = carrier;
    this.peerHas = offset;
    this.#sent = offset;
    this.#release();
    this.#inFlight = new InFlight(this.#most, offset);
  }

  /** The peer has everything before `received`. Returns false if that was known. */
  acknowledge(received: number): boolean {
    if (received <= this.peerHas) return false;
    this.peerHas = received;
    this.#release();
    this.#inFlight.onAck(this.#replay.acked, performance.now());
    return true;
  }

  /**
   * Frees bytes that the peer has. Bytes that it received on an older carrier only are still sent on the present one,
   * because offsets on a carrier must have no gap.
   */
  #release(): void {
    const upTo = Math.min(this.peerHas, this.#sent);
    if (upTo <= this.#replay.acked) return;
    this.#pool.hold(this.#replay.acked - upTo);
    this.#replay.acknowledge(upTo);
  }

  clear(): void {
    this.carrier = undefined;
    this.#pool.hold(-this.#replay.bytes);
    this.#replay.clear();
  }
}

interface Batch {
  /** Where it begins in the link. */
  readonly from: number;
  to: number;
  buffers: readonly Buffer[];
}

/** Batches of fewer bytes are copied together, because each would cost several times its bytes. */
const SMALL = 1024;
/** The buffers of a larger batch are copied together if they have fewer bytes on average. */
const LEAST_MEAN = 256;
/** Sizes of the blocks for small batches, bytes: a larger one only behind one that is full and kept. */
const BLOCK = { least: 2 * 1024, most: 16 * 1024 };

const SPENT: Batch = { from: 0, to: 0, buffers: [] };
/** Number of batches that the ring always has room for. It shrinks to this when it is empty. */
const LEAST_ROOM = 64;

/**
 * Bytes that a link has to send and the peer has not acknowledged, by their offset in the link: references to the
 * batches, and copies of small ones. A batch is freed when all of it is acknowledged.
 *
 * ```
 *   0 ───────── acked ───────────────────────── end
 *     freed           kept, can be read again
 * ```
 */
export class Replay {
  /**
   * A ring, which is cleared behind what is freed and before it is dropped: V8 treats what an old array holds as alive
   * until the next full collection, even when nobody has the array any more.
   */
  #ring: Batch[] = new Array(LEAST_ROOM).fill(SPENT);
  /** The index of the first batch. */
  #first = 0;
  #count = 0;
  /** Everything before this offset is freed. */
  acked = 0;
  /** The offset of the next byte to be appended. */
  end = 0;
  /** Small batches are written here, the next one at `#blockUsed`. */
  #block: Buffer | undefined;
  #blockUsed = 0;
  /** Where in `#block` the last batch begins, if it is one that the next small one can join. */
  #lastBegins: number | undefined;

  /** Bytes that are not acknowledged. */
  get bytes(): number {
    return this.end - this.acked;
  }

  append(buffers: readonly Buffer[], byteLength: number): void {
    if (byteLength < SMALL) this.#appendSmall(buffers, byteLength);
    else {
      this.#lastBegins = undefined;
      const areSmall = byteLength < LEAST_MEAN * buffers.length;
      this.#push(areSmall ? [compact(Buffer.concat(buffers, byteLength))] : buffers, byteLength);
    }
  }

  #appendSmall(buffers: readonly Buffer[], byteLength: number): void {
    const block = this.#blockWithRoom(byteLength);
    const last = this.#count > 0 && this.#lastBegins !== undefined ? this.#at(this.#count - 1) : undefined;
    const begins = last === undefined ? this.#blockUsed : (this.#lastBegins as number);
    for (const buffer of buffers) {
      block.set(buffer, this.#blockUsed);
      this.#blockUsed += buffer.length;
    }
    const all = [block.subarray(begins, this.#blockUsed)];
    if (last === undefined) this.#push(all, byteLength);
    else {
      this.end += byteLength;
      last.to = this.end;
      last.buffers = all;
    }
    this.#lastBegins = begins;
  }

  #blockWithRoom(byteLength: number): Buffer {
    const before = this.#block;
    if (before !== undefined && this.#blockUsed + byteLength <= before.length) return before;
    const isKept = this.#count > 0 && this.#lastBegins !== undefined;
    this.#block = Buffer.allocUnsafeSlow(isKept ? Math.min(BLOCK.most, 2 * (before?.length ?? 0)) : BLOCK.least);
    this.#blockUsed = 0;
    this.#lastBegins = undefined;
    return this.#block;
  }

  #push(buffers: readonly Buffer[], byteLength: number): void {
    const from = this.end;
    this.end += byteLength;
    if (this.#count === this.#ring.length) this.#makeRoom(2 * this.#count);
    this.#ring[(this.#first + this.#count) % this.#ring.length] = { from, to: this.end, buffers };
    this.#count++;
  }

  #makeRoom(batches: number): void {
    const before = this.#ring;
    const room: Batch[] = new Array(batches).fill(SPENT);
    for (let index = 0; index < this.#count; index++) room[index] = this.#at(index);
    before.fill(SPENT);
    this.#ring = room;
    this.#first = 0;
  }

  #at(index: number): Batch {
    return this.#ring[(this.#first + index) % this.#ring.length] as Batch;
  }

  /** Frees everything before `offset`, which lies between `acked` and `end`. */
  acknowledge(offset: number): void {
    this.acked = offset;
    while (this.#count > 0 && this.#at(0).to <= offset) {
      this.#ring[this.#first] = SPENT;
      this.#first = (this.#first + 1) % this.#ring.length;
      this.#count--;
    }
    if (this.#count === 0) this.#lastBegins = undefined;
    if (this.#count === 0 && this.#ring.length > LEAST_ROOM) this.#makeRoom(LEAST_ROOM);
  }

  /** Reads at least `least` bytes from `offset` on, in whole buffers, or all that there are. */
  read(offset: number, least: number): { readonly buffers: Buffer[]; readonly byteLength: number } {
    const buffers: Buffer[] = [];
    let byteLength = 0;
    for (let index = this.#batchAt(offset); index < this.#count && byteLength < least; index++) {
      const batch = this.#at(index);
      let skip = Math.max(0, offset - batch.from);
      for (const buffer of batch.buffers) {
        if (skip >= buffer.length) {
          skip -= buffer.length;
          continue;
        }
        const rest = skip === 0 ? buffer : buffer.subarray(skip);
        skip = 0;
        buffers.push(rest);
        byteLength += rest.length;
        if (byteLength >= least) break;
      }
    }
    return { buffers, byteLength };
  }

  clear(): void {
    this.#count = 0;
    this.#makeRoom(LEAST_ROOM);
    this.acked = this.end;
    this.#block = undefined;
    this.#lastBegins = undefined;
  }

  /** The index of the first batch that reaches beyond `offset`. */
  #batchAt(offset: number): number {
    let low = 0;
    let high = this.#count;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.#at(middle).to <= offset) low = middle + 1;
      else high = middle;
    }
    return low;
  }
}
