import { Queue, QueueNode } from "./queue.ts";

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
    let timer = SharedInterval.#timers.get(periodMs);
    if (timer === undefined) {
      timer = new SharedInterval(periodMs);
      SharedInterval.#timers.set(periodMs, timer);
    }
    return timer;
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
