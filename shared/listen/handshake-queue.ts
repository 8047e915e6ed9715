import { BySource } from "../basics/by-source.ts";
import { OrderedSet, Queue, QueueNode } from "../basics/collections.ts";

/** A limit that some handshakes share, as those of one cluster's agents do. Budgets take turns with each other. */
export interface HandshakeBudget {
  /** Counts one handshake if it may begin now. */
  take(): boolean;
  /** A credential was proved from this address: another client's offence there does not keep these clients out. */
  readonly isProven?: boolean;
  /** The limit that was reached, for a sentence. */
  readonly exhausted?: string | undefined;
}

export const UNLIMITED: HandshakeBudget = { take: () => true };

/** A client that waits for its handshake. */
export interface QueuedHandshake {
  readonly budget: HandshakeBudget;
  /** The client's network (`networkOf`): the networks of one budget take turns. */
  readonly network: string;
  /** When its handshake began, by `performance.now()`; the queue sets it. */
  begunAt: number;
}

export interface HandshakeQueueOptions<T> {
  /** Maximum number of handshakes in progress, however short the turns of the event loop are. */
  readonly most: number;
  /** Whether a handshake of this network may begin now, beside those in progress. */
  mayBegin(item: T): boolean;
  begin(item: T): void;
}

/** So many handshakes may be in progress even while the loop is late: other work must not keep all clients out. */
const LEAST = 4;
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
 *
 * ```
 *  enter ─▶ waiting: budget ▸ network ▸ arrival ──▶ begun ──▶ (slow: goes on, and is no longer counted)
 *              │ leave                                │ leave: the next may begin
 * ```
 */
export class HandshakeQueue<T extends QueuedHandshake> {
  readonly #options: HandshakeQueueOptions<T>;
  /** All clients that wait, whatever their budget, except those in `#first`. */
  readonly #waiting = new BySource<T>();
  readonly #lines = new WeakMap<HandshakeBudget, BudgetLine<T>>();
  readonly #turns = new Queue<BudgetLine<T>>();
  readonly #first = new OrderedSet<T>();
  /** Handshakes in progress that are not slow. */
  readonly #begun = new OrderedSet<T>();
  #limit: number;
  #turn: NodeJS.Immediate | undefined;
  #hasArrived = false;
  #turnsGiven = 0;
  #look: NodeJS.Timeout | undefined;
  #lookedAt = 0;
  #cpuMs = 0;
  /** Since when a client has waited without a break, and how many handshakes have begun since. */
  #busySince = 0;
  #begunSince = 0;

  constructor(options: HandshakeQueueOptions<T>) {
    this.#options = options;
    this.#limit = nextLimit(0, 0, options.most);
  }

  get waiting(): number {
    return this.#waiting.size + this.#first.size;
  }

  /** The client to drop when too many wait: the oldest of the network that has most. */
  get oldestOfFullest(): T | undefined {
    return this.#waiting.oldestOfFullest;
  }

  /** How long a client that enters now would wait for its turn at this pace, ms; 0 while the pace is not known. */
  drainMs({ budget, network }: QueuedHandshake): number {
    if (this.#begunSince < PACE_SAMPLES) return 0;
    const items = this.#lines.get(budget)?.items;
    const inTurns =
      ((items?.sizeOf(network) ?? 0) + 1) * Math.max(1, items?.sources ?? 0) * Math.max(1, this.#turns.size);
    const ahead = Math.min(this.waiting, inTurns);
    return (ahead * (performance.now() - this.#busySince)) / this.#begunSince;
  }

  /** A connection has been accepted: the next one may wait in the kernel behind it. */
  onArrival(): void {
    this.#hasArrived = true;
  }

  enter(item: T): void {
    this.#arrive();
    const line = this.#lineOf(item.budget);
    line.items.add(item, item.network);
    this.#waiting.add(item, item.network);
    this.#turns.join(line.place);
    this.#schedule();
  }

  /** Puts a client before all others, without counting it in its budget. */
  enterFirst(item: T): void {
    this.#arrive();
    this.#first.add(item);
    this.#schedule();
  }

  /** The client has gone before its turn, or its handshake is over. */
  leave(item: T): void {
    if (this.#remove(item) || this.#first.delete(item)) return;
    if (this.#begun.delete(item)) this.#schedule();
  }

  #remove(item: T): boolean {
    if (!this.#waiting.delete(item)) return false;
    const line = this.#lineOf(item.budget);
    line.items.delete(item);
    if (line.items.size === 0) this.#turns.leave(line.place);
    return true;
  }

  /** Forgets all clients, and returns those that waited. */
  clear(): T[] {
    const waited = [...this.#first, ...this.#waiting];
    for (const item of waited) this.#remove(item);
    this.#first.clear();
    this.#begun.clear();
    clearImmediate(this.#turn);
    this.#turn = undefined;
    this.#stopLooking();
    return waited;
  }

  #lineOf(budget: HandshakeBudget): BudgetLine<T> {
    const known = this.#lines.get(budget);
    if (known !== undefined) return known;
    const line = new BudgetLine<T>(budget);
    this.#lines.set(budget, line);
    return line;
  }

  /**
   * A client that waits alone begins at once. Those in progress, which may be silent, have left nobody waiting, so a
   * few more are not too many.
   */
  #arrive(): void {
    if (this.waiting > 0) return;
    this.#limit = Math.min(this.#options.most, Math.max(this.#limit, this.#begun.size + LEAST));
    this.#busySince = performance.now();
    this.#begunSince = 0;
  }

  #schedule(): void {
    if (this.waiting === 0) return;
    if (this.#begun.size < this.#limit) this.#turn ??= setImmediate(this.#beginOne);
    // One client alone begins in the next turn: there is nothing to look at, unless its budget keeps it back.
    if (this.#look === undefined && (this.waiting > 1 || this.#turn === undefined)) this.#startLooking();
  }

  readonly #beginOne = (): void => {
    this.#turn = undefined;
    if (this.#hasArrived && this.waiting > 1 && this.#turnsGiven < TURNS_FOR_ARRIVALS) {
      this.#hasArrived = false;
      this.#turnsGiven++;
      this.#schedule();
      return;
    }
    this.#turnsGiven = 0;
    const item = this.#takeNext();
    if (item === undefined) {
      if (this.#look === undefined) this.#startLooking();
      return;
    }
    this.#begunSince++;
    this.#begun.add(item);
    item.begunAt = performance.now();
    this.#options.begin(item);
    this.#schedule();
  };

  /** Undefined: no budget allows a handshake now; the next look asks again. */
  #takeNext(): T | undefined {
    const first = this.#first.first;
    if (first !== undefined) {
      this.#first.delete(first);
      return first;
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
      if (next !== undefined && this.#options.mayBegin(next)) return next;
      items.passTurn();
    }
    return undefined;
  }

  // ── how late the loop is ───────────────────────────────────────────────────────────────────────────────────────

  #startLooking(): void {
    this.#lookedAt = performance.now();
    this.#cpuMs = cpuNow();
    this.#look = setInterval(this.#onLook, LOOK_MS);
  }

  #stopLooking(): void {
    clearInterval(this.#look);
    this.#look = undefined;
    this.#limit = nextLimit(0, 0, this.#options.most);
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
    this.#limit = nextLimit(this.#limit, lateMs, this.#options.most);
    this.#schedule();
  };

  #forgetSlow(now: number): void {
    let { first } = this.#begun;
    while (first !== undefined && now - first.begunAt >= SLOW_MS) {
      this.#begun.delete(first); // those behind it began later
      first = this.#begun.first;
    }
  }
}

/** Processor time that the process has used, ms. */
function cpuNow(): number {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1_000;
}
