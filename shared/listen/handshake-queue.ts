import { BySource } from "../basics/by-source.ts";
import { OrderedSet, Queue, QueueNode } from "../basics/collections.ts";
import type { HandshakeBudget } from "./handshake-budget.ts";

/** A client that waits for its handshake. */
export interface QueuedHandshake {
  readonly budget: HandshakeBudget;
  /** The client's network (`networkOf`): the networks of one budget take turns. */
  readonly network: string;
  /** When its handshake began, by `performance.now()`; the queue sets it. */
  begunAt: number;
  /** The queue sets it for a client that would wait too long: it is to come back after so many milliseconds. */
  retryAfterMs: number | undefined;
}

export interface HandshakeBounds {
  /** Maximum time that a connection waits for its handshake, and that the handshake takes. */
  readonly handshakeTimeoutMs: number;
  /**
   * Maximum number of handshakes in progress, and of connections whose preface is not complete. One more drops the
   * oldest of the network that has most: real ones take milliseconds, and only those that are held open grow old.
   */
  readonly maxHandshakes: number;
  /** Maximum number of clients that wait for their handshake. */
  readonly maxWaitingHandshakes: number;
  /** Some of the clients that would wait too long are admitted and told when to come back (`retryAfterMs`). */
  readonly clientsObeyRetryAfter: boolean;
}

export interface HandshakeQueueHandler<T> {
  /** Whether a handshake of this client may begin now, for what its network has done before. */
  mayBegin(item: T): boolean;
  /** The client's turn has come. */
  begin(item: T): void;
  /** There are too many handshakes in progress (`dropped`), or too many that wait: ends one, and calls `leave`. */
  drop(item: T, how: "dropped" | "crowded"): void;
}

/** So many handshakes may be in progress even while the loop is late: other work must not keep all clients out. */
const LEAST = 4;
/** The share of the handshakes in progress that one network may have. */
const SHARE_OF_ONE = 0.25;
/** Beyond its share, one handshake of a network begins in so many ms. */
const BEYOND_SHARE_MS = 5;
/** Maximum number of clients that wait to be told when to come back; others wait in the queue, or are dropped. */
const MAX_SURPLUS = 64;
/** The pace may improve meanwhile: no client is told to stay away for longer than once to twice so many ms. */
const MAX_RETRY_AFTER_MS = 10_000;
/** Telling a client costs a handshake as well: one handshake in so many is used for it. */
const ONE_SURPLUS_IN = 8;
/** While a client waits, budgets are checked and the delay of the loop is measured every so many ms. */
const LOOK_MS = 5;
/** A turn of the loop that is later than this, ms, delays other connections noticeably. */
const LATE_MS = 10;
/** A handshake that takes longer than this, ms, waits for its peer: it is no longer counted as in progress. */
const SLOW_MS = 200;
/**
 * Node accepts one connection of a listener in a turn of the loop. While connections keep coming, so many turns pass
 * between two handshakes: a turn without a handshake is ten times as short, and the kernel's backlog is emptied first.
 */
const TURNS_FOR_ARRIVALS = 16;
/** Fewer handshakes than this say nothing about the pace. */
const PACE_SAMPLES = 50;

/**
 * The next limit of handshakes in progress, after the loop was so late: half if that is too late, else a quarter more.
 * It grows that fast because thousands that begin and never continue cost no time, and must not delay those that do.
 */
export function nextLimit(limit: number, lateMs: number, most: number): number {
  const next = lateMs > LATE_MS ? Math.floor(limit / 2) : limit + Math.ceil(limit / 4);
  return Math.min(most, Math.max(LEAST, next));
}

/** The clients that wait for one budget. */
class BudgetLine<T extends QueuedHandshake> {
  readonly budget: HandshakeBudget;
  readonly items = new BySource<T>();
  /** The place of this budget in the order of turns, while a client waits for it. */
  readonly place: QueueNode<BudgetLine<T>> = new QueueNode(this);

  constructor(budget: HandshakeBudget) {
    this.budget = budget;
  }
}

/**
 * Decides which TLS handshake begins, and when (docs/decisions/0008, 0019): one in a turn of the event loop, and only
 * as many at once as leave the turns short. Budgets take turns, and so do the networks within one budget; clients of
 * one network go in the order of arrival. So thousands of clients of one cluster, or from one address, delay no others.
 * Waiting costs a socket and a ClientHello, a tenth of what a handshake in progress holds.
 *
 * ```
 *  enter ─┬─▶ waiting: budget ▸ network ▸ arrival ──────▶ begun ──▶ (slow: goes on, and is no longer counted)
 *         └─▶ surplus ── one in eight, with retryAfterMs ──▶ │ leave: the next may begin
 * ```
 */
export class HandshakeQueue<T extends QueuedHandshake> {
  readonly #bounds: HandshakeBounds;
  readonly #handler: HandshakeQueueHandler<T>;
  /** All clients that wait, whatever their budget, except the surplus. */
  readonly #queued = new BySource<T>();
  readonly #lines = new WeakMap<HandshakeBudget, BudgetLine<T>>();
  readonly #turns = new Queue<BudgetLine<T>>();
  /** Clients that would wait too long, in the order of arrival. No budget counts them. */
  readonly #surplus = new OrderedSet<T>();
  readonly #inProgress = new BySource<T>();
  /** Handshakes in progress that are not slow. */
  readonly #quick = new OrderedSet<T>();
  #limit: number;
  #turn: NodeJS.Immediate | undefined;
  #hasArrived = false;
  #turnsGiven = 0;
  /** When a handshake last began for a network that had its share in progress. */
  #beyondShareAt = 0;
  #look: NodeJS.Timeout | undefined;
  #lookedAt = 0;
  #cpuMs = 0;
  /** Since when a client has waited without a break, and how many handshakes have begun since. */
  #busySince = 0;
  #begunSince = 0;

  constructor(bounds: HandshakeBounds, handler: HandshakeQueueHandler<T>) {
    this.#bounds = bounds;
    this.#handler = handler;
    this.#limit = nextLimit(0, 0, bounds.maxHandshakes);
  }

  get waiting(): number {
    return this.#queued.size + this.#surplus.size;
  }

  /** The number of clients that wait, and of handshakes in progress. */
  get size(): number {
    return this.waiting + this.#inProgress.size;
  }

  *[Symbol.iterator](): IterableIterator<T> {
    yield* this.#surplus;
    yield* this.#queued;
    yield* this.#inProgress;
  }

  /** A connection has been accepted: the next one may wait in the kernel behind it. */
  onArrival(): void {
    this.#hasArrived = true;
  }

  enter(item: T): void {
    this.#arrive();
    const { maxWaitingHandshakes, handshakeTimeoutMs, clientsObeyRetryAfter } = this.#bounds;
    const isHopeless = this.#queued.size >= maxWaitingHandshakes || this.#drainMs(item) > handshakeTimeoutMs;
    if (isHopeless && clientsObeyRetryAfter && this.#surplus.size < MAX_SURPLUS) {
      this.#surplus.add(item);
    } else {
      const line = this.#lineOf(item.budget);
      line.items.add(item, item.network);
      this.#queued.add(item, item.network);
      this.#turns.join(line.place);
    }
    this.#schedule();
    const oldest = this.#queued.size > maxWaitingHandshakes ? this.#queued.oldestOfFullest : undefined;
    if (oldest !== undefined) this.#handler.drop(oldest, "crowded");
  }

  /** Begins the handshake of a client that does not wait. It does not count among those that make turns long. */
  beginNow(item: T): void {
    this.#inProgress.add(item, item.network);
    this.#handler.begin(item); // one that has gone leaves at once, and displaces none
    const tooMany = this.#inProgress.size > this.#bounds.maxHandshakes;
    const oldest = tooMany ? this.#inProgress.oldestOfFullest : undefined;
    if (oldest !== undefined) this.#handler.drop(oldest, "dropped");
  }

  /** The client has gone, or its handshake is over. */
  leave(item: T): void {
    if (this.#inProgress.delete(item)) this.#quick.delete(item);
    else if (!this.#remove(item)) this.#surplus.delete(item);
    this.#schedule();
  }

  #remove(item: T): boolean {
    if (!this.#queued.delete(item)) return false;
    const line = this.#lineOf(item.budget);
    line.items.delete(item);
    if (line.items.size === 0) this.#turns.leave(line.place);
    return true;
  }

  #lineOf(budget: HandshakeBudget): BudgetLine<T> {
    const known = this.#lines.get(budget);
    if (known !== undefined) return known;
    const line = new BudgetLine<T>(budget);
    this.#lines.set(budget, line);
    return line;
  }

  /** How long a client that enters now would wait for its turn at this pace, ms; 0 while the pace is not known. */
  #drainMs({ budget, network }: T): number {
    if (this.#begunSince < PACE_SAMPLES) return 0;
    const items = this.#lines.get(budget)?.items;
    const inTurns =
      ((items?.sizeOf(network) ?? 0) + 1) * Math.max(1, items?.sources ?? 0) * Math.max(1, this.#turns.size);
    const ahead = Math.min(this.#queued.size, inTurns);
    return (ahead * (performance.now() - this.#busySince)) / this.#begunSince;
  }

  /**
   * A client that waits alone begins at once. Those in progress, which may be silent, have left nobody waiting, so a
   * few more are not too many.
   */
  #arrive(): void {
    if (this.waiting > 0) return;
    this.#limit = Math.min(this.#bounds.maxHandshakes, Math.max(this.#limit, this.#quick.size + LEAST));
    this.#busySince = performance.now();
    this.#begunSince = 0;
  }

  #schedule(): void {
    if (this.waiting === 0) return;
    if (this.#quick.size < this.#limit) this.#turn ??= setImmediate(this.#beginOne);
    // One client alone begins in the next turn: there is nothing to look at, unless its budget keeps it back.
    if (this.waiting > 1 || this.#turn === undefined) this.#startLooking();
  }

  readonly #beginOne = (): void => {
    this.#turn = undefined;
    if (this.waiting === 0) return;
    if (this.#hasArrived && this.waiting > 1 && this.#turnsGiven < TURNS_FOR_ARRIVALS) {
      this.#hasArrived = false;
      this.#turnsGiven++;
      this.#schedule();
      return;
    }
    this.#turnsGiven = 0;
    const item = this.#takeNext();
    if (item === undefined) {
      this.#startLooking();
      return;
    }
    this.#begunSince++;
    this.#quick.add(item);
    item.begunAt = performance.now();
    this.beginNow(item);
    this.#schedule();
  };

  /** Undefined: no budget allows a handshake now; the next look asks again. */
  #takeNext(): T | undefined {
    const isLast = this.#queued.size === 0;
    const surplus = isLast || (this.#begunSince + 1) % ONE_SURPLUS_IN === 0 ? this.#surplus.first : undefined;
    if (surplus !== undefined && this.#handler.mayBegin(surplus)) {
      this.#surplus.delete(surplus);
      // Spread over twice the time: clients that are told together must not come back together.
      if (!isLast) surplus.retryAfterMs = Math.min(this.#drainMs(surplus), MAX_RETRY_AFTER_MS) * (1 + Math.random());
      return surplus;
    }
    for (let lines = this.#turns.size; lines > 0; lines--) {
      const line = this.#turns.first?.member;
      if (line === undefined) break;
      line.place.leave();
      this.#turns.join(line.place); // behind the others
      const item = this.#nextOf(line);
      if (item === undefined || !line.budget.take()) continue;
      this.#remove(item);
      return item;
    }
    return undefined;
  }

  /** The next client of the network whose turn it is, or of the next network that may begin. */
  #nextOf({ items }: BudgetLine<T>): T | undefined {
    for (let networks = items.sources; networks > 0; networks--) {
      const { next } = items;
      if (next !== undefined && this.#mayBegin(next)) return next;
      items.passTurn();
    }
    return undefined;
  }

  /**
   * Further handshakes of a network that has its share in progress begin slowly: each costs the first half of one.
   * Where a credential was proved, honest clients share the network, and wait only for those before them.
   */
  #mayBegin(item: T): boolean {
    if (!this.#handler.mayBegin(item)) return false;
    const { network, budget } = item;
    if (budget.isProven === true) return true;
    const share = Math.ceil(this.#bounds.maxHandshakes * SHARE_OF_ONE);
    if (this.#inProgress.sizeOf(network) < share) return true;
    const now = performance.now();
    if (now - this.#beyondShareAt < BEYOND_SHARE_MS) return false;
    this.#beyondShareAt = now;
    return true;
  }

  // ── how late the loop is ───────────────────────────────────────────────────────────────────────────────────────

  #startLooking(): void {
    if (this.#look !== undefined) return;
    this.#lookedAt = performance.now();
    this.#cpuMs = cpuNow();
    this.#look = setInterval(this.#onLook, LOOK_MS);
  }

  #stopLooking(): void {
    clearInterval(this.#look);
    this.#look = undefined;
    this.#limit = nextLimit(0, 0, this.#bounds.maxHandshakes);
  }

  readonly #onLook = (): void => {
    if (this.waiting === 0) {
      this.#stopLooking();
      return;
    }
    const [now, cpuMs] = [performance.now(), cpuNow()];
    // A loop that did not get the processor is late as well, but its own work is not the reason.
    const lateMs = Math.min(now - this.#lookedAt - LOOK_MS, cpuMs - this.#cpuMs);
    this.#lookedAt = now;
    this.#cpuMs = cpuMs;
    this.#forgetSlow(now);
    this.#limit = nextLimit(this.#limit, lateMs, this.#bounds.maxHandshakes);
    this.#schedule();
  };

  #forgetSlow(now: number): void {
    let { first } = this.#quick;
    while (first !== undefined && now - first.begunAt >= SLOW_MS) {
      this.#quick.delete(first); // those behind it began later
      first = this.#quick.first;
    }
  }
}

/** Processor time that the process has used, ms. */
function cpuNow(): number {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1_000;
}
