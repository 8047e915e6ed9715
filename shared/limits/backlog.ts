import { holdsTooMuch } from "./hold.ts";

/**
 * Each piece costs some 350 bytes beside its own: a Buffer, what V8 keeps of it outside its heap, malloc's part. Shorter
 * ones are copied together, whatever they keep alive.
 */
const WORTH_ITS_COST = 1024;
/** The first block for small pieces, bytes; each is as large as what is held already, up to a TLS record. */
const BLOCK = { least: 256, most: 16 * 1024 };
/** Taken pieces are moved out of the way when there are so many, and they are half of all. */
const WORTH_MOVING = 64;

/** Bytes that wait for a reader, in order, held in proportion to their number, whatever pieces they come in. */
export class Backlog {
  readonly #pieces: Buffer[] = [];
  /** The first that has not been taken. */
  #first = 0;
  /** Small pieces are gathered here, behind `#pieces`. */
  #block: Buffer | undefined;
  #blockUsed = 0;
  #bytes = 0;

  get bytes(): number {
    return this.#bytes;
  }

  add(piece: Buffer): void {
    this.#bytes += piece.length;
    if (piece.length < WORTH_ITS_COST || holdsTooMuch(piece)) this.#copy(piece);
    else {
      this.#closeBlock();
      this.#pieces.push(piece);
    }
  }

  #copy(piece: Buffer): void {
    for (let at = 0; at < piece.length; ) {
      if (this.#block === undefined || this.#blockUsed === this.#block.length) {
        this.#closeBlock();
        this.#block = Buffer.allocUnsafeSlow(Math.min(BLOCK.most, Math.max(BLOCK.least, this.#bytes)));
      }
      const copied = piece.copy(this.#block, this.#blockUsed, at);
      this.#blockUsed += copied;
      at += copied;
    }
  }

  #closeBlock(): void {
    if (this.#block !== undefined) this.#pieces.push(this.#block.subarray(0, this.#blockUsed));
    this.#block = undefined;
    this.#blockUsed = 0;
  }

  /** The next piece; `undefined`: there is none. */
  take(): Buffer | undefined {
    if (this.#first === this.#pieces.length) this.#closeBlock();
    const piece = this.#pieces[this.#first];
    if (piece === undefined) return undefined;
    this.#pieces[this.#first++] = EMPTY;
    this.#bytes -= piece.length;
    if (this.#first === this.#pieces.length) {
      this.#pieces.length = 0;
      this.#first = 0;
    } else if (this.#first >= WORTH_MOVING && this.#first * 2 >= this.#pieces.length) {
      this.#pieces.splice(0, this.#first);
      this.#first = 0;
    }
    return piece;
  }

  clear(): void {
    this.#pieces.length = 0;
    this.#first = 0;
    this.#block = undefined;
    this.#blockUsed = 0;
    this.#bytes = 0;
  }
}

const EMPTY = Buffer.alloc(0);
