import { MAX_UINT32 } from "./frame.ts";

const NOTHING: readonly Buffer[] = [];
/** A tail has up to so many bytes, behind a frame of at least one TLS record. */
const MOST_TAIL = 1024;
const LEAST_BEFORE_TAIL = 16 * 1024;

/** What a stream has been given to write and not sent yet, and how much of it the peer's window allows. */
export class SendBuffer {
  #window: number;
  #chunks: readonly Buffer[] = NOTHING;
  /** Where the next byte is. */
  #index = 0;
  #offset = 0;
  #length = 0;

  /** @param window bytes that the peer takes before it gives credit */
  constructor(window: number) {
    this.#window = window;
  }

  /** Bytes that wait. */
  get length(): number {
    return this.#length;
  }

  /** Something waits, and the window allows a part of it. */
  get isSendable(): boolean {
    return this.#length > 0 && this.#window > 0;
  }

  /** What waits behind a frame of `sent` bytes is a short rest, which the window allows. */
  isTail(sent: number): boolean {
    return sent >= LEAST_BEFORE_TAIL && this.#length <= Math.min(MOST_TAIL, this.#window);
  }

  add(chunks: readonly Buffer[], byteLength: number): void {
    this.#chunks = this.#length === 0 ? chunks : [...this.#rest(), ...chunks];
    this.#length += byteLength;
    this.#index = 0;
    this.#offset = 0;
  }

  #rest(): readonly Buffer[] {
    const [first, ...others] = this.#chunks.slice(this.#index);
    return first === undefined ? NOTHING : [first.subarray(this.#offset), ...others];
  }

  /** Moves up to `limit` bytes into `batch`, as far as the window allows. Returns their number. */
  take(limit: number, batch: Buffer[]): number {
    const room = Math.min(limit, this.#window);
    let taken = 0;
    while (taken < room) {
      const chunk = this.#chunks[this.#index];
      if (chunk === undefined) break;
      const start = this.#offset;
      const end = Math.min(chunk.length, start + room - taken);
      batch.push(start === 0 && end === chunk.length ? chunk : chunk.subarray(start, end));
      taken += end - start;
      this.#offset = end;
      if (end === chunk.length) {
        this.#index++;
        this.#offset = 0;
      }
    }
    this.#window -= taken;
    this.#length -= taken;
    if (this.#length === 0) this.#chunks = NOTHING;
    return taken;
  }

  /**
   * The peer gives `delta` bytes of credit. Returns false if the window would pass a uint32, which no honest peer
   * does.
   */
  grant(delta: number): boolean {
    if (this.#window + delta > MAX_UINT32) return false;
    this.#window += delta;
    return true;
  }

  clear(): void {
    this.#chunks = NOTHING;
    this.#length = 0;
  }
}
