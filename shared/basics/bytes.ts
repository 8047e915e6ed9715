/**
 * Bytes that arrive piece by piece, in one buffer that doubles: thousands of one-byte pieces are copied a few times
 * only.
 */
export class GrowingBytes {
  #buffer = Buffer.alloc(0);
  #length = 0;

  get length(): number {
    return this.#length;
  }

  /** A view, valid until the next `append`. */
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

/** A piece is a view of the read that it arrived in and keeps all of it alive. True: it is less than half of that. */
function wastesMemory(piece: Buffer): boolean {
  return piece.length * 2 < piece.buffer.byteLength;
}

/** The number of bytes in all pieces. */
export function bytesIn(pieces: readonly Buffer[]): number {
  return pieces.reduce((sum, { length }) => sum + length, 0);
}

/** Returns the same bytes in a buffer that keeps at most twice their number alive, whatever arrived around them. */
export function compact(piece: Buffer): Buffer {
  if (!wastesMemory(piece)) return piece;
  const copy = Buffer.allocUnsafeSlow(piece.length); // one from Node's pool would keep 8 KiB alive
  piece.copy(copy);
  return copy;
}

/**
 * Each piece costs about 350 bytes of its own: a Buffer, what V8 keeps of it outside its heap, malloc's part. Shorter
 * pieces than this are copied together.
 */
const LEAST_OWN_PIECE = 1024;
/** The first block for small pieces, bytes; each is as large as what is held already, up to a TLS record. */
const BLOCK = { least: 256, most: 16 * 1024 };
/** The array is shortened when this many pieces at its beginning are taken, and they are half of all. */
const SHORTEN_AT = 64;
const EMPTY = Buffer.alloc(0);

/**
 * Bytes that wait for a reader, in order. The memory they take is in proportion to their number, whatever their
 * pieces.
 */
export class ByteQueue {
  readonly #pieces: Buffer[] = [];
  /** Index of the first piece that has not been taken. */
  #first = 0;
  /** Small pieces are gathered here, after `#pieces`. */
  #block: Buffer | undefined;
  #blockUsed = 0;
  #bytes = 0;

  get bytes(): number {
    return this.#bytes;
  }

  add(piece: Buffer): void {
    this.#bytes += piece.length;
    if (piece.length < LEAST_OWN_PIECE || wastesMemory(piece)) this.#copy(piece);
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

  /** The next piece, or `undefined` if there is none. */
  take(): Buffer | undefined {
    if (this.#bytes === 0) return undefined;
    if (this.#first === this.#pieces.length) this.#closeBlock();
    const piece = this.#pieces[this.#first];
    if (piece === undefined) return undefined;
    this.#pieces[this.#first++] = EMPTY;
    this.#bytes -= piece.length;
    if (this.#first === this.#pieces.length) {
      this.#pieces.length = 0;
      this.#first = 0;
    } else if (this.#first >= SHORTEN_AT && this.#first * 2 >= this.#pieces.length) {
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

/** The plaintext of one TLS record at most, bytes (RFC 8446 §5.1): what one read at the other end brings. */
const RECORD = 16 * 1024;

/** How many of the `most` bytes from byte `at` of a write on fill whole records; `most` where none ends among them. */
export function wholeRecords(at: number, most: number): number {
  const beyond = (at + most) % RECORD;
  return beyond < most ? most - beyond : most;
}

const shifted = new Uint8Array(4);
const shiftedWord = new Uint32Array(shifted.buffer);
/** Shorter pieces are done byte by byte, because a view of the words costs more. */
const LEAST_BY_WORDS = 32;

/**
 * XORs a piece with a key of four bytes that repeats, by words: byte by byte it costs ten times as much. `at`: where in
 * the key the piece begins.
 */
export function xorInPlace(piece: Buffer, key: Uint8Array, at: number): void {
  const { length, byteOffset } = piece;
  if (length < LEAST_BY_WORDS) {
    xorBytes(piece, key, at, 0, length);
    return;
  }
  const head = -byteOffset & 3;
  const words = new Uint32Array(piece.buffer, byteOffset + head, (length - head) >>> 2);
  for (let index = 0; index < shifted.length; index++) shifted[index] = key[(at + head + index) & 3] as number;
  const word = shiftedWord[0] as number;
  xorBytes(piece, key, at, 0, head);
  for (let index = 0; index < words.length; index++) words[index] = (words[index] as number) ^ word;
  xorBytes(piece, key, at, head + words.byteLength, length);
}

function xorBytes(piece: Buffer, key: Uint8Array, at: number, from: number, to: number): void {
  for (let index = from; index < to; index++) {
    piece[index] = (piece[index] as number) ^ (key[(at + index) & 3] as number);
  }
}
