import { Place, Queue } from "./queue.ts";

/** One timer for all that is looked at with the same period: a timer for each splice costs more than the look. */
export class LookTimer {
  static readonly #timers = new Map<number, LookTimer>();
  readonly #periodMs: number;
  readonly #looks = new Queue<() => void>();
  #timer: NodeJS.Timeout | undefined;

  private constructor(periodMs: number) {
    this.#periodMs = periodMs;
  }

  /** The timer of that period, ms; it does not keep the process alive. */
  static every(periodMs: number): LookTimer {
    let timer = LookTimer.#timers.get(periodMs);
    if (timer === undefined) {
      timer = new LookTimer(periodMs);
      LookTimer.#timers.set(periodMs, timer);
    }
    return timer;
  }

  /** `look` is called each period until it leaves its place; the first time within one. */
  add(look: () => void): Place<() => void> {
    const place = new Place(look);
    this.#looks.join(place);
    this.#timer ??= setInterval(() => this.#tick(), this.#periodMs).unref();
    return place;
  }

  #tick(): void {
    if (this.#looks.size === 0) {
      clearInterval(this.#timer);
      this.#timer = undefined;
      return;
    }
    for (const look of this.#looks) look();
  }
}
