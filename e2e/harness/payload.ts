import { createHash } from "node:crypto";

/** Odd length: a chunk that is lost, doubled or out of order never lands on the same bytes again. */
const POOL_BYTES = 1_048_573;
const pool = makePool();

function makePool(): Buffer {
  const bytes = Buffer.allocUnsafe(POOL_BYTES);
  let state = 0x9e3779b9;
  for (let i = 0; i < POOL_BYTES; i++) {
    // xorshift32: cheap, and the same bytes in every process
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    bytes[i] = state & 255;
  }
  return bytes;
}

/** Endless bytes that both ends can compute: `at(offset)` is a slice of a shared pool, nothing is copied. */
export class Payload {
  readonly #start: number;

  constructor(seed = 0) {
    this.#start = Math.abs((seed * 7919) % POOL_BYTES);
  }

  /** Up to `length` bytes of the payload at `offset` (fewer at the end of the pool). */
  at(offset: number, length: number): Buffer {
    const from = (this.#start + offset) % POOL_BYTES;
    return pool.subarray(from, Math.min(from + length, POOL_BYTES));
  }

  /** SHA-256 (hex) of the first `bytes`. */
  sha256(bytes: number): string {
    const hash = createHash("sha256");
    for (let offset = 0; offset < bytes; ) {
      const chunk = this.at(offset, bytes - offset);
      hash.update(chunk);
      offset += chunk.length;
    }
    return hash.digest("hex");
  }
}
