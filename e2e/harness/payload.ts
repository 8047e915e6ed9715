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

  /** The first `bytes`, in one piece. */
  whole(bytes: number): Buffer {
    const parts: Buffer[] = [];
    for (let at = 0; at < bytes; at += parts.at(-1)?.length ?? 0) parts.push(this.at(at, bytes - at));
    return Buffer.concat(parts);
  }

  /** SHA-256 (hex) of the first `bytes`. */
  sha256(bytes: number): string {
    return createHash("sha256").update(this.whole(bytes)).digest("hex");
  }
}

/** Compares what arrives with the payload it must be, byte for byte: stronger than equal digests, and far cheaper. */
export class PayloadCheck {
  readonly #payload: Payload;
  bytes = 0;
  /** Offset of the first chunk that is not what was sent there. */
  wrongAt: number | undefined;

  constructor(seed = 0) {
    this.#payload = new Payload(seed);
  }

  take(chunk: Buffer): void {
    for (let at = 0; at < chunk.length && this.wrongAt === undefined; ) {
      const expected = this.#payload.at(this.bytes + at, chunk.length - at);
      if (!chunk.subarray(at, at + expected.length).equals(expected)) this.wrongAt = this.bytes + at;
      at += expected.length;
    }
    this.bytes += chunk.length;
  }

  /** Throws unless exactly the first `bytes` of the payload have come. */
  expect(bytes: number, what: string): void {
    if (this.wrongAt !== undefined) throw new Error(`${what}: other bytes than were sent, from ${this.wrongAt} on`);
    if (this.bytes !== bytes) throw new Error(`${what}: ${this.bytes} bytes of ${bytes} arrived`);
  }
}
