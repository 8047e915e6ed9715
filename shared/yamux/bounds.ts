import { type MemoryAccount, UNBOUNDED } from "../limits/memory-account.ts";
import { SPEC_INITIAL_WINDOW } from "./frame.ts";

/** Every bound of a session, with what it protects from. */
export interface SessionOptions {
  /** Bytes a stream may receive before its reader has taken any; both ends must agree on it. */
  readonly initialWindow: number;
  /** A larger first window while memory is not short; the difference is announced with SYN or ACK, or right after. */
  readonly freshWindow: number;
  /** The largest window one stream can grow to, bytes: the bandwidth-delay product worth serving. */
  readonly maxWindow: number;
  /**
   * Bytes that all windows of the session may have beyond their initial size. Streams are reset when more is unread.
   */
  readonly budget: number;
  /** The account of all sessions together: many of them, each within its budget, can be too much. */
  readonly pool: MemoryAccount;
  /** Streams open at once, both directions together: bounds the memory that a peer's SYNs can take. */
  readonly maxStreams: number;
  /** Streams we may open before the session is used up (spec: ids are never re-used). */
  readonly maxStreamIds: number;
  /** Payload of one data frame, bytes: one stream's turn. */
  readonly maxFramePayload: number;
  /** Bytes that the transport may hold untaken, which a control frame has to wait for. */
  readonly maxPending: number;
  /**
   * A tail behind a large frame waits for the next write only when this many bytes have gone one way and none has
   * come back, because a reader may be waiting for the end of a shorter message.
   */
  readonly bulkBytes: number;
  /** Frames that carry nothing (pings, empty data, updates of 0, resets) a peer may send in one second. */
  readonly maxIdleFramesPerSecond: number;
  /**
   * The cost of a frame with little payload, in credits. Keystrokes on thousands of streams come to less. 0 between
   * servers: one session carries the streams of many clusters.
   */
  readonly littleFrameCost: number;
  /** Milliseconds; replaced in tests. */
  readonly now: () => number;
}

export const DEFAULT_OPTIONS: Omit<SessionOptions, "now"> = {
  initialWindow: SPEC_INITIAL_WINDOW,
  freshWindow: 0,
  maxWindow: 16 * 1024 * 1024,
  budget: 64 * 1024 * 1024,
  pool: UNBOUNDED,
  maxStreams: 65_536,
  maxStreamIds: 2 ** 30,
  maxFramePayload: 64 * 1024,
  maxPending: 256 * 1024,
  bulkBytes: 8 * 1024 * 1024,
  maxIdleFramesPerSecond: 20_000,
  littleFrameCost: 1 / 5,
};

/** Fills in the defaults. No maximum is below an initial size. */
export function completeOptions(options: Partial<SessionOptions>): SessionOptions {
  const chosen = { now: performance.now.bind(performance), ...DEFAULT_OPTIONS, ...options };
  const { maxWindow, initialWindow, freshWindow } = chosen;
  return { ...chosen, maxWindow: Math.max(maxWindow, initialWindow, freshWindow) };
}

/** Time after which everything that was under way to a stream has arrived, ms, also over a link that was suspended. */
const ARRIVED_MS = 60_000;

/**
 * Limits the payload for streams that have ended here to what their windows allowed at that moment, because that may
 * have been under way. More than that obeys no window and could be sent without end.
 */
export class LateDataLimit {
  readonly #now: () => number;
  /** Beginning of the present period. */
  #since: number;
  /** Bytes for streams that have ended in this period, and in the one before. */
  #allowed = 0;
  #allowedBefore = 0;

  constructor(now: () => number) {
    this.#now = now;
    this.#since = now();
  }

  /** A stream has ended here whose window still allowed this number of bytes. */
  allow(bytes: number): void {
    this.#startPeriod();
    this.#allowed += bytes;
  }

  /** Returns false if the peer had no right to send this number of bytes. */
  take(bytes: number): boolean {
    this.#startPeriod();
    const left = this.#allowedBefore - bytes;
    this.#allowedBefore = Math.max(0, left);
    if (left < 0) this.#allowed += left;
    return this.#allowed >= 0;
  }

  #startPeriod(): void {
    const now = this.#now();
    const passedMs = now - this.#since;
    if (passedMs < ARRIVED_MS) return;
    this.#allowedBefore = passedMs < 2 * ARRIVED_MS ? this.#allowed : 0;
    this.#allowed = 0;
    this.#since = now;
  }
}

/**
 * Number of ids below the highest that may still come: a peer with several threads may send its SYNs in another order.
 */
const MAX_SKIPPED = 1024;

/** The ids of streams that the peer has opened; they rise by two. */
export class PeerStreamIds {
  readonly #parity: number;
  #highest: number;
  readonly #skipped = new Set<number>();

  /** @param first the first id of that side: 1 for a client, 2 for a server */
  constructor(first: 1 | 2) {
    this.#parity = first % 2;
    this.#highest = first - 2;
  }

  /** Takes an id for a new stream. Returns a sentence if the peer may not use it. */
  use(id: number): string | undefined {
    if (id === 0) return "stream 0 is the session itself";
    if (id % 2 !== this.#parity) return `stream ${id} has the other side's parity`;
    if (id <= this.#highest) return this.#skipped.delete(id) ? undefined : `stream ${id} was used before`;
    const skipped = (id - this.#highest) / 2 - 1;
    if (this.#skipped.size + skipped > MAX_SKIPPED) return `stream ${id} skips too many ids`;
    for (let missing = this.#highest + 2; missing < id; missing += 2) this.#skipped.add(missing);
    this.#highest = id;
    return undefined;
  }

  /** Was `id` opened at some time? */
  has(id: number): boolean {
    return id > 0 && id <= this.#highest && id % 2 === this.#parity && !this.#skipped.has(id);
  }
}

/** The ids of streams that we open. */
export class OwnStreamIds {
  readonly #first: number;
  readonly #max: number;
  #taken = 0;

  /** @param max how many there are; the spec never uses one twice */
  constructor(first: 1 | 2, max: number) {
    this.#first = first;
    this.#max = max;
  }

  get exhausted(): boolean {
    return this.#taken >= this.#max;
  }

  take(): number {
    return this.#first + 2 * this.#taken++;
  }

  /** Is `id` one of this side's, used or not? */
  owns(id: number): boolean {
    return id > 0 && id % 2 === this.#first % 2;
  }

  has(id: number): boolean {
    return this.owns(id) && id < this.#first + 2 * this.#taken;
  }
}
