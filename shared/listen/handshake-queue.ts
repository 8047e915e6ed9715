import { BySource } from "../basics/by-source.ts";
import { OrderedSet, Queue, QueueNode } from "../basics/collections.ts";
import type { HandshakeBudget } from "./handshake-budget.ts";

/** A client that waits for its handshake. */
export interface QueuedHandshake {
  readonly budget: HandshakeBudget;
  /** The network of the client (`networkOf`). The networks of one budget take turns. */
  readonly network: string;
  /** The time at which its handshake began, by `performance.now()`. The queue sets it. */
  begunAt: number;
  /** The time after which the client should come back, ms. The queue sets it for clients that would wait too long. */
  retryAfterMs: number | undefined;
}

export interface HandshakeBounds {
  /** Maximum time that a connection waits for its handshake, and that the handshake takes. */
  readonly handshakeTimeoutMs: number;
  /**
   * Maximum number of handshakes in progress, and of connections whose preface is not complete. Beyond it the oldest of
   * the network that has most is dropped: real handshakes take milliseconds, so an old one is being held open.
   */
  readonly maxHandshakes: number;
  /** Maximum number of clients that wait for their handshake. */
  readonly maxWaitingHandshakes: number;
  /** Whether some of the clients that would wait too long get a handshake, and `retryAfterMs`. */
  readonly clientsObeyRetryAfter: boolean;
}

export interface HandshakeQueueHandler<T> {
  /** Whether a handshake of this client may begin now: its network may have wasted too many bytes. */
  mayBegin(item: T): boolean;
  /** Begins the handshake: the client's turn has come. */
  begin(item: T): void;
  /** Ends a client and calls `leave`. `dropped`: too many handshakes are in progress; `crowded`: too many wait. */
  drop(item: T, how: "dropped" | "crowded"): void;
}

/** Minimum limit of handshakes in progress, however late the loop is: other work must not keep all clients out. */
const LEAST = 4;
/** The part of `maxHandshakes` that one network may have in progress before it is slowed down. */
const SHARE_OF_ONE = 0.25;
/** Minimum time between two handshakes of networks that have their share in progress, ms. */
const BEYOND_SHARE_MS = 5;
/** Maximum number of clients that wait to get `retryAfterMs`; others wait in the queue, or are dropped. */
const MAX_SURPLUS = 64;
/** Maximum of `retryAfterMs` before it is spread over twice the time. It is short because the pace may improve. */
const MAX_RETRY_AFTER_MS = 10_000;
/** One handshake in this many is used to send a client away: that takes a handshake as well. */
const ONE_SURPLUS_IN = 8;
/** Interval in which budgets are checked and the delay of the loop is measured while a client waits, ms. */
const LOOK_MS = 5;
/** Delay of the loop that other connections notice, ms. */
const LATE_MS = 10;
/** A handshake that takes longer than this, ms, is slow: it waits for its peer, and the limit no longer counts it. */
const SLOW_MS = 200;
/**
 * Number of turns of the loop between two handshakes while connections keep arriving. Node accepts one connection of a
 * listener in a turn, and a turn without a handshake is ten times as short, so the kernel's backlog is emptied first.
 */
const TURNS_FOR_ARRIVALS = 16;
/** Minimum number of handshakes from which the pace is calculated. */
const PACE_SAMPLES = 50;

/**
 * Returns the next limit of handshakes in progress, after the loop was late by `lateMs`: half of `limit` if that is too
 * late, else a quarter more. The limit grows that fast because handshakes that begin and never continue cost no time,
 * and thousands of them must not delay the others.
 */
export function nextLimit(limit: number, lateMs: number, most: number): number {
  const next = lateMs > LATE_MS ? Math.floor(limit / 2) : limit + Math.ceil(limit / 4);
  return Math.min(most, Math.max(LEAST, next));
}

/** All clients that wait for one budget. */
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
 * as many at once as keep the turns short. Budgets take turns, and so do the networks within one budget; the clients of
 * one network begin in order of arrival. So thousands of clients of one cluster, or from one address, delay no others.
 * A waiting client costs a socket and a ClientHello, a tenth of what a handshake in progress holds.
 *
 * ```
 *  enter ─┬─▶ waiting: budget ▸ network ▸ arrival ──────▶ begun ──▶ (slow: goes on, and is no longer counted)
 *         └─▶ surplus ── one in eight, with retryAfterMs ──▶ │ leave: the next may begin
 * ```
 */
export class HandshakeQueue<T extends QueuedHandshake> {
  readonly #bounds: HandshakeBounds;
  readonly #handler: HandshakeQueueHandler<T>;
  /** Clients of all budgets that wait, without the surplus. */
  readonly #queued = new BySource<T>();
  readonly #lines = new WeakMap<HandshakeBudget, BudgetLine<T>>();
  /** Budgets for which a client waits, in the order of their turns. */
  readonly #turns = new Queue<BudgetLine<T>>();
  /** Clients that would wait too long, in order of arrival. No budget counts them. */
  readonly #surplus = new OrderedSet<T>();
  readonly #inProgress = new BySource<T>();
  /** Handshakes in progress that are not slow. */
  readonly #quick = new OrderedSet<T>();
  /** Maximum number of quick handshakes at once. */
  #limit: number;
  #turn: NodeJS.Immediate | undefined;
  #hasArrived = false;
  #turnsGiven = 0;
  /** The time at which a handshake last began for a network that had its share in progress. */
  #beyondShareAt = 0;
  #look: NodeJS.Timeout | undefined;
  #lookedAt = 0;
  #cpuMs = 0;
  /** The time since which at least one client has always been waiting. */
  #busySince = 0;
  /** The number of handshakes that have begun since `#busySince`. */
  #begunSince = 0;

  constructor(bounds: HandshakeBounds, handler: HandshakeQueueHandler<T>) {
    this.#bounds = bounds;
    this.#handler = handler;
    this.#limit = nextLimit(0, 0, bounds.maxHandshakes);
  }

  /** The number of clients that wait. */
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

  /** A connection was accepted. Another one may be waiting behind it in the kernel. */
  onArrival(): void {
    this.#hasArrived = true;
  }

  /** Lets a client wait for its turn. */
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

  /** Removes a client that has gone, or whose handshake is over. */
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

  /** The time that a client which enters now would wait at the present pace, ms; 0 while the pace is not known. */
  #drainMs({ budget, network }: T): number {
    if (this.#begunSince < PACE_SAMPLES) return 0;
    const items = this.#lines.get(budget)?.items;
    const inTurns =
      ((items?.sizeOf(network) ?? 0) + 1) * Math.max(1, items?.sources ?? 0) * Math.max(1, this.#turns.size);
    const ahead = Math.min(this.#queued.size, inTurns);
    return (ahead * (performance.now() - this.#busySince)) / this.#begunSince;
  }

  /**
   * Raises the limit for a client that waits alone, so that it begins at once. A few handshakes more are not too many
   * then, because no client was waiting, and those in progress may be silent.
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
    // A client that waits alone begins in the next turn, and needs no measurement, unless the limit is reached.
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
    this.#inProgress.add(item, item.network);
    this.#handler.begin(item); // a client that has gone leaves at once, and displaces no other
    const tooMany = this.#inProgress.size > this.#bounds.maxHandshakes;
    const oldest = tooMany ? this.#inProgress.oldestOfFullest : undefined;
    if (oldest !== undefined) this.#handler.drop(oldest, "dropped");
    this.#schedule();
  };

  /** Takes the next client out; `undefined`: no budget allows a handshake now, and `#onLook` tries again. */
  #takeNext(): T | undefined {
    const isLast = this.#queued.size === 0;
    const surplus = isLast || (this.#begunSince + 1) % ONE_SURPLUS_IN === 0 ? this.#surplus.first : undefined;
    if (surplus !== undefined && this.#handler.mayBegin(surplus)) {
      this.#surplus.delete(surplus);
      // The wait is spread over twice the time, so that clients sent away together do not come back together.
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

  /** The next client of the network whose turn it is, or else of the next network that may begin a handshake. */
  #nextOf({ items }: BudgetLine<T>): T | undefined {
    for (let networks = items.sources; networks > 0; networks--) {
      const { next } = items;
      if (next !== undefined && this.#mayBegin(next)) return next;
      items.passTurn();
    }
    return undefined;
  }

  /**
   * Whether a handshake of this client may begin now. A network that has its share in progress begins further ones
   * slowly, because each costs at least its first half. A proven network is not slowed down: honest clients share it.
   */
  #mayBegin(item: T): boolean {
    if (!this.#handler.mayBegin(item)) return false;
    const { network, budget } = item;
    if (budget.provenAs !== undefined) return true;
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
    // Processor time bounds the delay: a process that did not run is late, too, but not because of its handshakes.
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
      this.#quick.delete(first); // the handshakes behind it began later
      first = this.#quick.first;
    }
  }
}

/** The processor time that this process has used, ms. */
function cpuNow(): number {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1_000;
}
