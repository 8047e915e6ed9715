import { MAX_UINT32 } from "./frame.ts";

/** The reader keeps up when it takes half a window within this many round trips: then the window is too small. */
const GROW_WITHIN_ROUND_TRIPS = 4;

/** Bytes that are owed at most where a good part of the window is under way: there a half that waits is a half not used. */
const MOST_OWED_ON_A_LONG_PATH = 2 * 1024 * 1024;
/** Up to this share of the window under way a path is short: the peer has room enough, and each credit costs a write. */
const SHORT_PATH_SHARE = 1 / 4;

/** Nobody waits for the credit of a window of which a half lasts so long, ms, while a quarter of it has not arrived. */
const UNHURRIED_MS = 40;

/** What growth is taken from: the session's budget for credit beyond initial windows. */
export interface CreditBudget {
  /** Takes `bytes` from the budget, or says no. */
  reserve(bytes: number): boolean;
  /** Some of it has come back. */
  giveBack(bytes: number): void;
  /** Others need it. */
  readonly mustShrink: boolean;
  /** Milliseconds of one round trip; 0 while unknown, which allows no growth. */
  readonly roundTripMs: number;
}

/**
 * The receiving half of a stream's flow control: what the peer may still send, and when to let it send more.
 *
 * Credit is given for bytes that the reader has taken, never for bytes that merely arrived, so a reader that stops costs
 * at most one window. It is given by halves, on long paths by 2 MiB at most: one update for many reads.
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
  #mostOwed = MOST_OWED_ON_A_LONG_PATH;
  /** Bytes given back of the present half. */
  #ofHalf = 0;
  #halfBegunAt: number;
  #creditedAt: number;
  /** How long a byte of the last credit took, ms. */
  #msPerByte = 0;
  #unhurried = false;

  constructor(size: number, maxSize: number, now: number) {
    this.size = size;
    this.initialSize = size;
    this.#maxSize = maxSize;
    this.#allowance = size;
    this.#halfBegunAt = now;
    this.#creditedAt = now;
  }

  /** Credit taken from the session's budget so far. */
  get reserved(): number {
    return this.size - this.initialSize;
  }

  /** Bytes the peer may still send. */
  get allowance(): number {
    return this.#allowance;
  }

  /** The credit that was last given may wait a little. */
  get unhurried(): boolean {
    return this.#unhurried;
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
    if (this.#owed * 2 < this.size && this.#owed < this.#mostOwed) return 0;
    const at = now();
    let credit = this.#owed;
    this.#judgePace(credit, at - this.#creditedAt, budget.roundTripMs);
    this.#creditedAt = at;
    this.#owed = 0;
    if (budget.mustShrink) credit -= this.#shrink(credit, budget);
    this.#ofHalf += credit;
    if (this.#ofHalf * 2 >= this.size) {
      credit += this.#growth(budget, at - this.#halfBegunAt);
      this.#halfBegunAt = at;
      this.#ofHalf = 0;
    }
    this.#allowance += credit;
    return credit;
  }

  /** By the faster of two credits: before one alone there may have been a pause, and now comes a burst. */
  #judgePace(bytes: number, lastedMs: number, roundTripMs: number): void {
    const msPerByte = Math.min(lastedMs / bytes, this.#msPerByte);
    this.#msPerByte = lastedMs / bytes;
    this.#unhurried = bytes * msPerByte >= UNHURRIED_MS && this.#allowance * 4 >= this.size;
    const isShort = roundTripMs > 0 && roundTripMs <= this.size * SHORT_PATH_SHARE * msPerByte;
    this.#mostOwed = isShort ? Number.POSITIVE_INFINITY : MOST_OWED_ON_A_LONG_PATH;
  }

  /** So many bytes less are given back: the window is smaller by them, down to what it began with. */
  #shrink(credit: number, budget: CreditBudget): number {
    const withheld = Math.min(credit, this.reserved);
    this.size -= withheld;
    if (withheld > 0) budget.giveBack(withheld);
    return withheld;
  }

  #growth(budget: CreditBudget, elapsedMs: number): number {
    const growth = Math.min(this.size, this.#maxSize - this.size);
    if (growth <= 0 || budget.mustShrink || elapsedMs >= GROW_WITHIN_ROUND_TRIPS * budget.roundTripMs) return 0;
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
