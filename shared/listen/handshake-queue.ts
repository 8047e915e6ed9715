import { BySource } from "../basics/by-source.ts";
import { getOrMake, OrderedSet, Queue, QueueNode } from "../basics/collections.ts";
import type { HandshakeBudget } from "./handshake-budget.ts";

/** A client that waits for its handshake. */
export interface QueuedHandshake {
  readonly budget: HandshakeBudget;
  /** The network of the client (`networkOf`). The networks of one budget take turns. */
  readonly network: string;
  /** The time at which its handshake began, by `performance.now()`. The queue sets it. */
  begunAt: number;
}

export interface HandshakeBounds {
  /**
   * Maximum number of handshakes in progress, and of connections whose preface is not complete. Beyond it the oldest of
   * the network that has most is dropped: real handshakes take milliseconds, so an old one is being held open.
   */
  readonly maxHandshakes: number;
  /** Maximum number of clients that wait for their handshake. */
  readonly maxWaitingHandshakes: number;
}

export interface HandshakeQueueHandler<T> {
  /** Whether a handshake of this client may begin now: its network may have wasted too many bytes. */
  mayBegin(item: T): boolean;
  /** Begins the handshake: the client's turn has come. */
  begin(item: T): void;
  /** Ends a client and calls `leave`. `dropped`: too many handshakes are in progress; `crowded`: too many wait. */
  drop(item: T, how: "dropped" | "crowded"): void;
}

/**
 * Maximum number of quick handshakes in progress. With more of them, the connections that are open notice a storm of
 * agents (docs/decisions/0008).
 */
export const MAX_QUICK = 16;
/** A handshake that takes longer than this, ms, is slow: it waits for its peer, and `MAX_QUICK` no longer counts it. */
const SLOW_MS = 50;
/** Time after which it is tried again whether a handshake may begin, if none may now, ms. */
const RETRY_MS = 10;

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
 * Decides which TLS handshake begins, and when (docs/decisions/0008, 0019): one in a turn of the event loop, and only a
 * few at once. Budgets take turns, and so do the networks within one budget; the clients of one network begin in order
 * of arrival. So thousands of clients of one cluster, or from one address, delay no others. A waiting client costs a
 * socket and a ClientHello, a tenth of what a handshake in progress holds.
 *
 * ```
 *  enter ──▶ waiting: budget ▸ network ▸ arrival ──▶ begun ──▶ (slow: goes on, and is no longer counted) ──▶ leave
 * ```
 */
export class HandshakeQueue<T extends QueuedHandshake> {
  readonly #bounds: HandshakeBounds;
  readonly #handler: HandshakeQueueHandler<T>;
  /** Clients of all budgets that wait. */
  readonly #queued = new BySource<T>();
  readonly #lines = new WeakMap<HandshakeBudget, BudgetLine<T>>();
  /** Budgets for which a client waits, in the order of their turns. */
  readonly #turns = new Queue<BudgetLine<T>>();
  readonly #inProgress = new BySource<T>();
  /** Handshakes in progress that are not slow. */
  readonly #quick = new OrderedSet<T>();
  readonly #maxQuick: number;
  #turn: NodeJS.Immediate | undefined;
  #retry: NodeJS.Timeout | undefined;

  constructor(bounds: HandshakeBounds, handler: HandshakeQueueHandler<T>) {
    this.#bounds = bounds;
    this.#handler = handler;
    this.#maxQuick = Math.min(MAX_QUICK, bounds.maxHandshakes);
  }

  /** The number of clients that wait. */
  get waiting(): number {
    return this.#queued.size;
  }

  /** The number of clients that wait, and of handshakes in progress. */
  get size(): number {
    return this.waiting + this.#inProgress.size;
  }

  *[Symbol.iterator](): IterableIterator<T> {
    yield* this.#queued;
    yield* this.#inProgress;
  }

  /** Lets a client wait for its turn. */
  enter(item: T): void {
    const line = this.#lineOf(item.budget);
    line.items.add(item, item.network);
    this.#queued.add(item, item.network);
    this.#turns.join(line.place);
    this.#schedule();
    const oldest = this.waiting > this.#bounds.maxWaitingHandshakes ? this.#queued.oldestOfFullest : undefined;
    if (oldest !== undefined) this.#handler.drop(oldest, "crowded");
  }

  /** Removes a client that has gone, or whose handshake is over. */
  leave(item: T): void {
    this.#quick.delete(item);
    if (!this.#inProgress.delete(item)) this.#remove(item);
    this.#schedule();
  }

  #remove(item: T): void {
    if (!this.#queued.delete(item)) return;
    const line = this.#lineOf(item.budget);
    line.items.delete(item);
    if (line.items.size === 0) this.#turns.leave(line.place);
  }

  #lineOf(budget: HandshakeBudget): BudgetLine<T> {
    return getOrMake(this.#lines, budget, () => new BudgetLine<T>(budget));
  }

  #schedule(): void {
    if (this.waiting === 0) return;
    if (this.#quick.size < this.#maxQuick) this.#turn ??= setImmediate(this.#beginOne);
    else this.#retryLater();
  }

  readonly #beginOne = (): void => {
    this.#turn = undefined;
    if (this.waiting === 0) return;
    const item = this.#takeNext();
    if (item === undefined) {
      this.#retryLater();
      return;
    }
    item.begunAt = performance.now();
    this.#quick.add(item);
    this.#inProgress.add(item, item.network);
    this.#handler.begin(item); // a client that has gone leaves at once, and displaces no other
    const tooMany = this.#inProgress.size > this.#bounds.maxHandshakes;
    const oldest = tooMany ? this.#inProgress.oldestOfFullest : undefined;
    if (oldest !== undefined) this.#handler.drop(oldest, "dropped");
    this.#schedule();
  };

  /** Takes the next client out; `undefined`: no budget allows a handshake now. */
  #takeNext(): T | undefined {
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
      if (next !== undefined && this.#handler.mayBegin(next)) return next;
      items.passTurn();
    }
    return undefined;
  }

  #retryLater(): void {
    this.#retry ??= setTimeout(() => {
      this.#retry = undefined;
      this.#forgetSlow();
      this.#schedule();
    }, RETRY_MS);
  }

  #forgetSlow(): void {
    const now = performance.now();
    for (const item of this.#quick) {
      if (now - item.begunAt < SLOW_MS) return; // those behind it began later
      this.#quick.delete(item);
    }
  }
}
