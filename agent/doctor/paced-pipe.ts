import type { Link } from "../../shared/link/link.ts";
import type { Transport, TransportConsumer } from "../../shared/yamux/transport.ts";

/** What is under way at first. */
const LEAST_BYTES = 16 * 1024;
/** Bytes beyond `LEAST_BYTES` that may be under way for each byte that has arrived in the last second. */
const GROWTH = 2;
const SLICE_MS = 500;

/**
 * A transport that measures its way: how much of what was written has arrived at the other end. Not much more is under
 * way than arrives in two seconds, so that a slow line is measured as one, and not filled with what takes it minutes.
 * It begins with 16 KiB and grows threefold with each round trip, which a fast line hardly feels.
 */
export class PacedPipe implements Transport {
  readonly #pipe: Transport;
  /** Knows which bytes the peer does not have yet. */
  readonly #link: Pick<Link, "unacknowledged">;
  #written: number;
  /** When what is under way last became less, or began. */
  #movedAtMs = performance.now();
  #seen = 0;
  #slice = { arrived: 0, sinceMs: performance.now() };
  #sliceBefore = this.#slice;
  #closed = false;
  #waiting: (() => void)[] = [];

  /** `link`: what carries the pipe. */
  constructor(pipe: Transport, link: Pick<Link, "unacknowledged">) {
    this.#pipe = pipe;
    this.#link = link;
    this.#written = this.underWay; // of the handshake
  }

  get underWay(): number {
    return Math.max(this.#link.unacknowledged, this.#pipe.pendingBytes);
  }

  /** Bytes that have come to the other end. */
  get arrived(): number {
    return Math.max(this.#seen, this.#written - this.underWay);
  }

  /** How long nothing has arrived, though something is under way. */
  get stalledMs(): number {
    return this.underWay === 0 ? 0 : performance.now() - this.#movedAtMs;
  }

  /** Resolves when nothing is under way, or the pipe has gone. */
  allArrived(): Promise<void> {
    if (this.underWay === 0 || this.#closed) return Promise.resolve();
    return new Promise((resolve) => this.#waiting.push(resolve));
  }

  // ── the transport ──────────────────────────────────────────────────────────────────────────────────────────────

  start(consumer: TransportConsumer): void {
    this.#pipe.start({
      onBytes: (chunk) => consumer.onBytes(chunk),
      onWritable: () => {
        this.#look();
        consumer.onWritable();
      },
      onClosed: (reason) => {
        this.#closed = true;
        this.#resolveWaiting();
        consumer.onClosed(reason);
      },
    });
  }

  get pendingBytes(): number {
    return this.#pipe.pendingBytes;
  }

  room(): number {
    return Math.min(this.#pipe.room(), LEAST_BYTES + GROWTH * this.#inLastSecond() - this.underWay);
  }

  wholeRecords(at: number, most: number): number {
    return this.#pipe.wholeRecords(at, most);
  }

  write(batch: readonly Buffer[], byteLength: number): void {
    if (this.underWay === 0) this.#movedAtMs = performance.now();
    this.#written += byteLength;
    this.#pipe.write(batch, byteLength);
  }

  end(): void {
    this.#pipe.end();
  }

  destroy(reason?: Error): void {
    this.#pipe.destroy(reason);
  }

  /** Of two slices, which are longer where acknowledgements are rare. */
  #inLastSecond(): number {
    const { arrived, sinceMs } = this.#sliceBefore;
    const share = Math.min(1, (2 * SLICE_MS) / (performance.now() - sinceMs));
    return Math.floor((this.arrived - arrived) * share);
  }

  /** Each acknowledgement makes room. */
  #look(): void {
    const { arrived } = this;
    if (arrived > this.#seen) {
      const now = performance.now();
      this.#seen = arrived;
      this.#movedAtMs = now;
      if (now - this.#slice.sinceMs >= SLICE_MS) {
        this.#sliceBefore = this.#slice;
        this.#slice = { arrived, sinceMs: now };
      }
    }
    if (this.underWay === 0) this.#resolveWaiting();
  }

  #resolveWaiting(): void {
    for (const resolve of this.#waiting.splice(0)) resolve();
  }
}
