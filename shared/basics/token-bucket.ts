export interface BucketOptions {
  readonly perSecond: number;
  /** How many may come at once after a pause. */
  readonly burst: number;
  /** Milliseconds; a clock that goes back gives nothing until it has caught up. */
  readonly now?: () => number;
}

/**
 * A token bucket: `perSecond` on average, and never more than `perSecond` × time + `burst`. It begins full. Knows
 * no timers: who is told to wait comes again.
 */
export class TokenBucket {
  /** The most that can be taken at once. */
  readonly burst: number;
  readonly #perMs: number;
  readonly #now: () => number;
  #level: number;
  #filledAt: number;

  constructor({ perSecond, burst, now = () => performance.now() }: BucketOptions) {
    this.#perMs = perSecond / 1_000;
    this.burst = burst;
    this.#now = now;
    this.#level = burst;
    this.#filledAt = now();
  }

  /** 0: taken. Else nothing was taken, and so many ms from now it could be, if nobody else takes it. */
  take(count: number): number {
    if (count > this.burst) throw new RangeError(`${count} never fit into a bucket of ${this.burst}`);
    this.#fill();
    if (this.#level < count) return Math.ceil((count - this.#level) / this.#perMs);
    this.#level -= count;
    return 0;
  }

  /**
   * Takes what has been used already, whatever there is: the bucket may owe. Answers how long nothing more should be
   * used, ms: for bytes, which are counted when they have passed.
   */
  charge(count: number): number {
    this.#fill();
    this.#level -= count;
    return this.#level >= 0 ? 0 : Math.ceil(-this.#level / this.#perMs);
  }

  #fill(): void {
    const now = this.#now();
    if (now <= this.#filledAt) return;
    this.#level = Math.min(this.burst, this.#level + (now - this.#filledAt) * this.#perMs);
    this.#filledAt = now;
  }
}
