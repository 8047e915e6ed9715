import { type MemoryAccount, PRESSURE, type Reclaimable } from "../limits/memory-account.ts";
import { RECLAIM, RECLAIM_TO, reclaim } from "../limits/reclaim.ts";
import type { StreamMemory } from "./flow-control.ts";

/** Above its budget a session resets streams whose readers have stopped, in this interval, ms. */
const RECLAIM_MS = 50;
const OVER_BUDGET =
  "its reader has stopped or is slow, and the tunnel holds more than --session-budget for such readers: let it read, or raise the budget";

/**
 * The bytes that the streams of one session hold, against the session's budget. An account pays for each of them as
 * well: the pool, or one that the stream was charged to (`paidBy`), where the session carries streams of several
 * clusters.
 */
export class SessionMemory {
  resets = 0;
  /** Counts the streams that the pool pays for. */
  readonly ofPool: StreamMemory;
  readonly #budget: number;
  readonly #pool: MemoryAccount;
  readonly #now: () => number;
  readonly #open: Iterable<Reclaimable>;
  /** Streams that are over on the wire, with bytes that no reader has taken yet. */
  readonly #unreadStreams = new Set<Reclaimable>();
  #reservedCredit = 0;
  #held = 0;
  #timer: NodeJS.Timeout | undefined;

  /** @param open the streams of the session that are not over */
  constructor(budget: number, pool: MemoryAccount, now: () => number, open: Iterable<Reclaimable>) {
    this.#budget = budget;
    this.#pool = pool;
    this.#now = now;
    this.#open = open;
    this.ofPool = this.paidBy(pool);
  }

  /** Bytes received that no reader has taken. */
  get held(): number {
    return this.#held;
  }

  /** The number of streams that the session has forgotten and that still hold bytes. */
  get unreadStreams(): number {
    return this.#unreadStreams.size;
  }

  /** Counts a stream in the session and in the account that pays for it. */
  paidBy(account: MemoryAccount): StreamMemory {
    return {
      get mustShrink() {
        return account.mustShrink;
      },
      hold: (delta) => {
        account.hold(delta);
        this.#held += delta;
        if (this.#isSpent) this.#reclaimSoon();
      },
      reserve: (bytes) => {
        if (this.#isSpent || this.#reservedCredit + bytes > this.#budget || !account.reserve(bytes)) return false;
        this.#reservedCredit += bytes;
        return true;
      },
      giveBack: (bytes) => {
        this.#reservedCredit -= bytes;
        account.release(bytes);
      },
    };
  }

  /** New streams that this account pays for begin with a small window. */
  isShort(account: MemoryAccount = this.#pool): boolean {
    return this.#isSpent || account.pressure >= PRESSURE.over;
  }

  get #isSpent(): boolean {
    return this.#held > this.#budget;
  }

  /** The stream that holds most is reset, even if it moves. */
  get isOverrun(): boolean {
    return this.#held > 2 * this.#budget;
  }

  #reclaimSoon(): void {
    this.#timer ??= setTimeout(this.#reclaim, RECLAIM_MS).unref();
  }

  readonly #reclaim = (): void => {
    this.#timer = undefined;
    if (!this.#isSpent) return;
    const isEnough = () => this.#held <= this.#budget * RECLAIM_TO;
    this.resets += reclaim(this.#holders(), isEnough, this.#now(), RECLAIM.stalled, OVER_BUDGET);
    if (this.#isSpent) this.#reclaimSoon();
  };

  /** All streams that hold something, whichever account pays. */
  *#holders(): Iterable<Reclaimable> {
    for (const stream of this.#open) if (stream.held > 0) yield stream;
    yield* this.#unreadStreams;
  }

  /** The stream is over on the wire, and may still hold something. */
  onOver(stream: Reclaimable): void {
    if (stream.held > 0) this.#unreadStreams.add(stream);
  }

  /** The stream is destroyed and holds nothing any more. */
  forget(stream: Reclaimable): void {
    this.#unreadStreams.delete(stream);
  }

  /** The session is over. Streams that were over before and are unread belong to their readers. */
  close(): void {
    clearTimeout(this.#timer);
  }

  /** Resets the stream that holds most, among the open ones and those that are over. */
  resetLargest(): void {
    let largest: Reclaimable | undefined;
    for (const stream of this.#holders()) if (stream.held > (largest?.held ?? 0)) largest = stream;
    if (largest === undefined) return;
    this.resets++;
    largest.evict(OVER_BUDGET);
  }
}
