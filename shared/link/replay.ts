interface Batch {
  /** Where it begins in the link. */
  readonly from: number;
  to: number;
  buffers: readonly Buffer[];
}

/** Batches of fewer bytes are copied together: kept as they are, each costs several times its bytes. */
const SMALL = 1024;
/** So are the buffers of a larger one if they have fewer bytes on the average. */
const LEAST_MEAN = 256;
/** Where small batches go, bytes: a larger block only behind one that is full and kept. */
const BLOCK = { least: 2 * 1024, most: 16 * 1024 };

const SPENT: Batch = { from: 0, to: 0, buffers: [] };
/** Batches there is always room for; room for more is let go with the last of them. */
const LEAST_ROOM = 64;

/**
 * What a link has been given to send and the peer has not acknowledged, by its position in the link. Holds references to
 * the batches as they came, and copies of small ones; a batch is let go when all of it is acknowledged. Pure.
 *
 * ```
 *   0 ───────── acked ───────────────────────── end
 *     let go          kept, can be read again       still to come
 * ```
 */
export class Replay {
  /**
   * A ring, cleared behind what is let go and before it is dropped: of an array that has become old, even when nobody has
   * it any more, V8 takes all it holds for alive, until the next full collection.
   */
  #ring: Batch[] = new Array(LEAST_ROOM).fill(SPENT);
  /** Where in it the first batch is that has not been let go. */
  #first = 0;
  #count = 0;
  #acked = 0;
  #end = 0;
  /** Small batches are written here, the next one at `#blockUsed`. */
  #block: Buffer | undefined;
  #blockUsed = 0;
  /** Where in `#block` the last batch begins, if it is one that the next small one can join. */
  #lastBegins: number | undefined;

  /** The peer has everything before this offset. */
  get acked(): number {
    return this.#acked;
  }

  /** The offset of the next byte to be appended. */
  get end(): number {
    return this.#end;
  }

  /** Bytes that are not acknowledged. */
  get bytes(): number {
    return this.#end - this.#acked;
  }

  append(buffers: readonly Buffer[], byteLength: number): void {
    if (byteLength < SMALL) this.#appendSmall(buffers, byteLength);
    else {
      this.#lastBegins = undefined;
      const areSmall = byteLength < LEAST_MEAN * buffers.length;
      this.#push(areSmall ? [Buffer.concat(buffers, byteLength)] : buffers, byteLength);
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
      this.#end += byteLength;
      last.to = this.#end;
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
    const from = this.#end;
    this.#end += byteLength;
    if (this.#count === this.#ring.length) this.#makeRoom(2 * this.#count);
    this.#ring[(this.#first + this.#count) % this.#ring.length] = { from, to: this.#end, buffers };
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

  /** The peer has all before `offset`, which is one between `acked` and `end`. */
  acknowledge(offset: number): void {
    this.#acked = offset;
    while (this.#count > 0 && this.#at(0).to <= offset) {
      this.#ring[this.#first] = SPENT;
      this.#first = (this.#first + 1) % this.#ring.length;
      this.#count--;
    }
    if (this.#count === 0) this.#lastBegins = undefined;
    if (this.#count === 0 && this.#ring.length > LEAST_ROOM) this.#makeRoom(LEAST_ROOM);
  }

  /** At least `least` bytes from `offset` on, in whole buffers, or all that there are. */
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
    this.#acked = this.#end;
    this.#block = undefined;
    this.#lastBegins = undefined;
  }

  /** The first batch that reaches beyond `offset`. */
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
