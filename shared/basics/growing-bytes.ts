/** Bytes that arrive piece by piece, in one buffer: thousands of pieces of one byte cost what they hold, and are copied a few times. */
export class GrowingBytes {
  #buffer = Buffer.alloc(0);
  #length = 0;

  get length(): number {
    return this.#length;
  }

  /** A view, good until the next `append`. */
  get bytes(): Buffer {
    return this.#buffer.subarray(0, this.#length);
  }

  append(piece: Buffer): void {
    const length = this.#length + piece.length;
    if (length > this.#buffer.length) {
      const larger = Buffer.alloc(Math.max(length, this.#buffer.length * 2));
      this.#buffer.copy(larger, 0, 0, this.#length);
      this.#buffer = larger;
    }
    piece.copy(this.#buffer, this.#length);
    this.#length = length;
  }
}
