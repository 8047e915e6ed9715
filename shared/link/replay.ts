interface Batch {
  /** Where it begins in the link. */
  readonly from: number;
  readonly to: number;
  readonly buffers: readonly Buffer[];
}

/** Spent batches in front are dropped together, because shifting an array costs its length. */
const COMPACT_AT = 256;

/**
 * What a link has been given to send and the peer has not acknowledged, by its position in the link. Holds references to
 * the batches as they came, no copies; a batch is let go when all of it is acknowledged. Pure.
 *
 * ```
 *   0 ───────── acked ───────────────────────── end
 *     let go          kept, can be read again       still to come
 * ```
 */
export class Replay {
  #batches: Batch[] = [];
  /** Batches before this one have been let go. */
  #first = 0;
  #acked = 0;
  #end = 0;

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
    const from = this.#end;
    this.#end += byteLength;
    this.#batches.push({ from, to: this.#end, buffers });
  }

  /** The peer has all before `offset`, which is one between `acked` and `end`. */
  acknowledge(offset: number): void {
    this.#acked = offset;
    for (; this.#first < this.#batches.length; this.#first++) {
      if ((this.#batches[this.#first] as Batch).to > offset) break;
      this.#batches[this.#first] = SPENT;
    }
    if (this.#first === this.#batches.length) this.#batches = [];
    else if (this.#first >= COMPACT_AT) this.#batches = this.#batches.slice(this.#first);
    else return;
    this.#first = 0;
  }

  /** At least `least` bytes from `offset` on, in whole buffers, or all that there are. */
  read(offset: number, least: number): { readonly buffers: Buffer[]; readonly byteLength: number } {
    const buffers: Buffer[] = [];
    let byteLength = 0;
    for (let index = this.#batchAt(offset); index < this.#batches.length && byteLength < least; index++) {
      const batch = this.#batches[index] as Batch;
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
    this.#batches = [];
    this.#first = 0;
    this.#acked = this.#end;
  }

  /** The first batch that reaches beyond `offset`. */
  #batchAt(offset: number): number {
    let low = this.#first;
    let high = this.#batches.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if ((this.#batches[middle] as Batch).to <= offset) low = middle + 1;
      else high = middle;
    }
    return low;
  }
}

const SPENT: Batch = { from: 0, to: 0, buffers: [] };
