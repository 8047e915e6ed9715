import { getOrMake, Queue, QueueNode } from "./collections.ts";

/** The longest time that Node's timers take, ms: 24 days. A longer one would end at once. */
export const MAX_TIMER_MS = 2 ** 31 - 1;

/**
 * One interval timer for all callbacks of the same period: a timer for each splice would cost more than the callback.
 */
export class SharedInterval {
  static readonly #timers = new Map<number, SharedInterval>();
  readonly #periodMs: number;
  readonly #callbacks = new Queue<() => void>();
  #timer: NodeJS.Timeout | undefined;

  private constructor(periodMs: number) {
    this.#periodMs = periodMs;
  }

  /** The timer of that period, ms; it does not keep the process alive. */
  static every(periodMs: number): SharedInterval {
    return getOrMake(SharedInterval.#timers, periodMs, () => new SharedInterval(periodMs));
  }

  /** Calls `callback` in each period until the node returned leaves its queue; the first time within one period. */
  add(callback: () => void): QueueNode<() => void> {
    const node = new QueueNode(callback);
    this.#callbacks.join(node);
    this.#timer ??= setInterval(() => this.#tick(), this.#periodMs).unref();
    return node;
  }

  #tick(): void {
    if (this.#callbacks.size === 0) {
      clearInterval(this.#timer);
      this.#timer = undefined;
      return;
    }
    for (const callback of this.#callbacks) callback();
  }
}

const SECOND_MS = 1_000;

/**
 * Makes a value at most once a second and returns that one meanwhile, so that unauthenticated peers can ask as often as
 * they like. A promise is kept until it settles, and for a second more.
 */
export function oncePerSecond<T>(make: () => T): () => T {
  let made: { readonly value: T } | undefined;
  const forget = (): void => {
    made = undefined;
  };
  const forgetLater = (): void => {
    setTimeout(forget, SECOND_MS).unref();
  };
  return () => {
    if (made !== undefined) return made.value;
    const value = make();
    made = { value };
    if (value instanceof Promise) value.then(forgetLater, forgetLater);
    else forgetLater();
    return value;
  };
}

/** Jobs in one turn of the event loop at most; each is about 0.3 ms of work, with the listeners that it calls. */
const MOST = 8;
/** A longer turn, ms, would be noticed by other connections. */
const LONG_MS = 4;

/**
 * Runs jobs that come all at once a few at a time, in order: the first at once, then in each turn of the event loop as
 * many as keep the turns short. When a lost path is back, thousands of connections come together, and the others must
 * not wait for them (docs/decisions/0008).
 */
export class TurnQueue {
  readonly #waiting = new Set<() => void>();
  #perTurn = MOST;
  #room = MOST;
  #turn: NodeJS.Immediate | undefined;
  #begunAt = 0;
  readonly #now: () => number;

  /** @param now ms, from any moment on */
  constructor(now = () => performance.now()) {
    this.#now = now;
  }

  /** The job may run before this returns, and must not throw. */
  run(job: () => void): void {
    if (this.#turn === undefined) this.#beginTurn();
    if (this.#room === 0 || this.#waiting.size > 0) {
      this.#waiting.add(job);
      return;
    }
    this.#room--;
    job();
  }

  #beginTurn(): void {
    this.#room = this.#perTurn;
    this.#begunAt = this.#now();
    this.#turn = setImmediate(this.#onTurn);
  }

  #runSome(): void {
    for (const job of this.#waiting) {
      if (this.#room === 0) return;
      this.#room--;
      this.#waiting.delete(job);
      job();
    }
  }

  readonly #onTurn = (): void => {
    this.#turn = undefined;
    const tookMs = this.#now() - this.#begunAt;
    this.#perTurn = tookMs > LONG_MS ? Math.ceil(this.#perTurn / 2) : Math.min(MOST, this.#perTurn + 1);
    if (this.#waiting.size === 0) return;
    this.#beginTurn();
    this.#runSome();
  };
}
