import { MAX_UINT32 } from "./frame.ts";

/** The reader keeps up when it takes half a window within this many round trips: then the window is too small. */
const GROW_WITHIN_ROUND_TRIPS = 4;

/** Bytes that are owed at most: of a large window on a long path, a half that waits to be given back is a half not used. */
const MOST_OWED = 2 * 1024 * 1024;

/** What growth is taken from: the session's budget for credit beyond initial windows. */
export interface CreditBudget {
  /** Takes `bytes` from the budget, or says no. */
  reserve(bytes: number): boolean;
  /** Milliseconds of one round trip; 0 while unknown, which allows no growth. */
  readonly roundTripMs: number;
}

/**
 * The receiving half of a stream's flow control: what the peer may still send, and when to let it send more.
 *
 * Credit is given for bytes that the reader has taken, never for bytes that merely arrived, so a reader that stops costs
 * at most one window. It is given by halves, of large windows by 2 MiB: one update for many reads.
 */
export class ReceiveWindow {
  /** Bytes the peer may have under way or in our buffer. */
  size: number;
  readonly #initialSize: number;
  readonly #maxSize: number;
  /** Bytes the peer may still send. */
  #allowance: number;
  /** Bytes read and not yet given back. */
  #owed = 0;
  /** Bytes given back of the present half. */
  #ofHalf = 0;
  #halfBegunAt: number;

  constructor(size: number, maxSize: number, now: number) {
    this.size = size;
    this.#initialSize = size;
    this.#maxSize = maxSize;
    this.#allowance = size;
    this.#halfBegunAt = now;
  }

  /** Credit taken from the session's budget so far. */
  get reserved(): number {
    return this.size - this.#initialSize;
  }

  /** The peer sends `length` bytes. False: it had no right to. */
  receive(length: number): boolean {
    if (length > this.#allowance) return false;
    this.#allowance -= length;
    return true;
  }

  /** The reader took `length` bytes. Returns the credit to send now: 0 until enough is owed. */
  consume(length: number, budget: CreditBudget, now: () => number): number {
    this.#owed += length;
    if (this.#owed < MOST_OWED && this.#owed * 2 < this.size) return 0;
    this.#ofHalf += this.#owed;
    let credit = this.#owed;
    this.#owed = 0;
    if (this.#ofHalf * 2 >= this.size) {
      const at = now();
      credit += this.#growth(budget, at - this.#halfBegunAt);
      this.#halfBegunAt = at;
      this.#ofHalf = 0;
    }
    this.#allowance += credit;
    return credit;
  }

  #growth(budget: CreditBudget, elapsedMs: number): number {
    const growth = Math.min(this.size, this.#maxSize - this.size);
    if (growth <= 0 || elapsedMs >= GROW_WITHIN_ROUND_TRIPS * budget.roundTripMs) return 0;
    if (!budget.reserve(growth)) return 0;
    this.size += growth;
    return growth;
  }
}

/** The sending half: bytes we may still send. */
export class SendWindow {
  available: number;

  constructor(size: number) {
    this.available = size;
  }

  /** The peer gives `delta` bytes. False: more than a uint32 can say, which no honest peer does. */
  grant(delta: number): boolean {
    if (this.available + delta > MAX_UINT32) return false;
    this.available += delta;
    return true;
  }
}
