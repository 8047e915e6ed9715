import type { Stream } from "./stream.ts";

/** What the sessions of a process hold together, against a bound that is none of one session's. */
export interface MemoryPool {
  /** The pool is used up: no window grows and no stream begins, until enough has been given back. */
  readonly isSpent: boolean;
  /** Bytes that are held for readers have changed by `delta`. */
  hold(delta: number): void;
  /** Takes credit beyond an initial window from the pool, or says no. */
  reserve(bytes: number): boolean;
  /** That credit is free again. */
  release(bytes: number): void;
  /** A stream has been refused for `isSpent`. */
  onRefused(): void;
}

/** For sessions that are bounded each by its own budget only. */
export const UNBOUNDED_POOL: MemoryPool = {
  isSpent: false,
  hold: () => {},
  reserve: () => true,
  release: () => {},
  onRefused: () => {},
};

/** What the streams of one session hold for readers that have not come, against the session's budget and the pool. */
export class Memory {
  readonly #budget: number;
  readonly #pool: MemoryPool;
  /** Streams that are over on the wire, with bytes that no reader has taken yet. */
  readonly #unreadStreams = new Set<Stream>();
  #reservedCredit = 0;
  #bufferedBytes = 0;

  constructor(budget: number, pool: MemoryPool) {
    this.#budget = budget;
    this.#pool = pool;
  }

  /** Bytes received that no reader has taken. */
  get bufferedBytes(): number {
    return this.#bufferedBytes;
  }

  /** Streams that the session has forgotten and that still hold bytes. */
  get unreadStreams(): number {
    return this.#unreadStreams.size;
  }

  /** No window grows and no stream is opened. */
  get isSpent(): boolean {
    return this.#bufferedBytes > this.#budget;
  }

  /** The streams that hold most have to go. */
  get isOverrun(): boolean {
    return this.#bufferedBytes > 2 * this.#budget;
  }

  /** `bufferedBytes` has changed by `delta`. */
  buffered(delta: number): void {
    this.#bufferedBytes += delta;
    this.#pool.hold(delta);
  }

  /** Takes credit beyond an initial window from budget and pool, or says no. */
  reserve(bytes: number): boolean {
    if (this.isSpent || this.#reservedCredit + bytes > this.#budget || !this.#pool.reserve(bytes)) return false;
    this.#reservedCredit += bytes;
    return true;
  }

  /** The stream is over on the wire: its credit is free, what it holds is not. */
  release(stream: Stream): void {
    const { reservedCredit } = stream;
    this.#reservedCredit -= reservedCredit;
    this.#pool.release(reservedCredit);
    if (stream.unread > 0) this.#unreadStreams.add(stream);
  }

  /** The stream is destroyed and holds nothing. */
  forget(stream: Stream): void {
    this.#unreadStreams.delete(stream);
  }

  /** Who holds most, among the open streams and those that are over. */
  largest(open: Iterable<Stream>): Stream | undefined {
    let largest: Stream | undefined;
    for (const streams of [open, this.#unreadStreams]) {
      for (const stream of streams) if (stream.unread > (largest?.unread ?? 0)) largest = stream;
    }
    return largest;
  }
}
