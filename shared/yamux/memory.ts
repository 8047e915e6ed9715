import type { Stream } from "./stream.ts";

/** What the streams of one session hold for readers that have not come, against the session's budget. */
export class Memory {
  readonly #budget: number;
  /** Streams that are over on the wire, with bytes that no reader has taken yet. */
  readonly #unreadStreams = new Set<Stream>();
  #reservedCredit = 0;
  /** Bytes received that no reader has taken. */
  bufferedBytes = 0;

  constructor(budget: number) {
    this.#budget = budget;
  }

  /** Streams that the session has forgotten and that still hold bytes. */
  get unreadStreams(): number {
    return this.#unreadStreams.size;
  }

  /** No window grows and no stream is opened. */
  get isSpent(): boolean {
    return this.bufferedBytes > this.#budget;
  }

  /** The streams that hold most have to go. */
  get isOverrun(): boolean {
    return this.bufferedBytes > 2 * this.#budget;
  }

  /** Takes credit beyond an initial window from the budget, or says no. */
  reserve(bytes: number): boolean {
    if (this.isSpent || this.#reservedCredit + bytes > this.#budget) return false;
    this.#reservedCredit += bytes;
    return true;
  }

  /** The stream is over on the wire: its credit is free, what it holds is not. */
  release(stream: Stream): void {
    this.#reservedCredit -= stream.reservedCredit;
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
