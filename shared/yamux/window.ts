/** The reader keeps up when it takes half a window within this many round trips: then the window is too small. */
const GROW_WITHIN_ROUND_TRIPS = 4;

/**
 * Credit is sent at the latest when so many bytes are owed: on a long path, half of a large window would not be used.
 */
const MOST_OWED = 2 * 1024 * 1024;

/** Where the growth of windows is taken from: the session's budget for credit beyond initial windows. */
export interface CreditBudget {
  /** Takes `bytes` from the budget. Returns false if there are not enough. */
  reserve(bytes: number): boolean;
  /** Some of it is free again. */
  giveBack(bytes: number): void;
  /** Others need it. */
  readonly mustShrink: boolean;
}

/** What growth is decided by. */
export interface PathTimes {
  readonly now: () => number;
  /** Milliseconds of one round trip; 0 while unknown, which allows no growth. */
  readonly roundTripMs: number;
}

/**
 * The receiving half of a stream's flow control: what the peer may still send, and when to let it send more.
 *
 * Credit is given for bytes that the reader has taken, never for bytes that merely arrived, so a reader that stops
 * costs at most one window. It is given by halves of the window, or by 2 MiB: one update for many reads.
 */
export class ReceiveWindow {
  /** Bytes the peer may have under way or in our buffer. */
  size: number;
  readonly initialSize: number;
  readonly #maxSize: number;
  /** Bytes the peer may still send. */
  #allowance: number;
  /** Bytes read and not yet given back. */
  #owed = 0;
  /** Bytes given back in the present half window, by whose duration growth is decided. */
  #ofHalf = 0;
  #halfBegunAt: number;

  constructor(size: number, maxSize: number, now: number) {
    this.size = size;
    this.initialSize = size;
    this.#maxSize = maxSize;
    this.#allowance = size;
    this.#halfBegunAt = now;
  }

  /** Credit taken from the session's budget so far. */
  get reserved(): number {
    return this.size - this.initialSize;
  }

  /** Bytes the peer may still send. */
  get allowance(): number {
    return this.#allowance;
  }

  /** The peer sends `length` bytes. Returns false if it had no right to. */
  receive(length: number): boolean {
    if (length > this.#allowance) return false;
    this.#allowance -= length;
    return true;
  }

  /** The reader took `length` bytes. Returns the credit to send now: 0 until enough is owed. */
  consume(length: number, budget: CreditBudget, path: PathTimes): number {
    this.#owed += length;
    if (this.#owed * 2 < this.size && this.#owed < MOST_OWED) return 0;
    let credit = this.#owed;
    this.#owed = 0;
    if (budget.mustShrink) credit -= this.#shrink(credit, budget);
    this.#ofHalf += credit;
    if (this.#ofHalf * 2 >= this.size) {
      const at = path.now();
      credit += this.#growth(budget, at - this.#halfBegunAt, path);
      this.#halfBegunAt = at;
      this.#ofHalf = 0;
    }
    this.#allowance += credit;
    return credit;
  }

  /** So many bytes of the credit are withheld: the window shrinks by them, at most to what it began with. */
  #shrink(credit: number, budget: CreditBudget): number {
    const withheld = Math.min(credit, this.reserved);
    this.size -= withheld;
    if (withheld > 0) budget.giveBack(withheld);
    return withheld;
  }

  #growth(budget: CreditBudget, elapsedMs: number, path: PathTimes): number {
    const growth = Math.min(this.size, this.#maxSize - this.size);
    if (growth <= 0 || budget.mustShrink || elapsedMs >= GROW_WITHIN_ROUND_TRIPS * path.roundTripMs) return 0;
    if (!budget.reserve(growth)) return 0;
    this.size += growth;
    return growth;
  }
}
