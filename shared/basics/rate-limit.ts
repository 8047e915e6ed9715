import { RecentMap } from "./collections.ts";

/** Keys (networks, identities) that a limit remembers at most; one more forgets the one that came longest ago. */
const MAX_KEYS = 1_024;

interface BucketOptions {
  readonly perSecond: number;
  /** How many may come at once after a pause. */
  readonly burst: number;
  /** Milliseconds; a clock that goes back gives nothing until it has caught up. */
  readonly now?: () => number;
}

/**
 * A token bucket: `perSecond` on average, and never more than `perSecond` × time + `burst`. It begins full and has no
 * timer: a caller that has to wait asks again.
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

  /** Returns 0 if `count` were taken. Else nothing was, and the result is the wait, ms, until they could be. */
  take(count: number): number {
    if (count > this.burst) throw new RangeError(`${count} never fit into a bucket of ${this.burst}`);
    this.#fill();
    if (this.#level < count) return Math.ceil((count - this.#level) / this.#perMs);
    this.#level -= count;
    return 0;
  }

  /**
   * Takes what has been used already, for bytes, which are counted after they have passed: the bucket may owe. Returns
   * how long nothing more should be used, ms.
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

/** A token bucket for each key (a network, an identity), full when its key is new. */
export class TokenBuckets {
  readonly #options: BucketOptions;
  readonly #buckets = new RecentMap<string, TokenBucket>(MAX_KEYS);

  constructor(options: BucketOptions) {
    this.#options = options;
  }

  /** Returns 0 if one was taken, or the wait, ms, until one could be. */
  take(key: string): number {
    return this.#bucketOf(key).take(1);
  }

  /** Takes what has been used already: see `TokenBucket.charge`. */
  charge(key: string, count: number): number {
    return this.#bucketOf(key).charge(count);
  }

  /** Whether more has been used than there was. */
  owes(key: string): boolean {
    return (this.#buckets.get(key)?.charge(0) ?? 0) > 0;
  }

  #bucketOf(key: string): TokenBucket {
    const bucket = this.#buckets.get(key) ?? new TokenBucket(this.#options);
    this.#buckets.set(key, bucket);
    return bucket;
  }

  /** Gives the last token of this key back, because it was not used. */
  giveBack(key: string): void {
    this.#buckets.get(key)?.charge(-1);
  }
}

/** The first penalty, ms; each further one is twice as long. */
const FIRST_PENALTY_MS = 1_000;
const MOST_PENALTY_MS = 60_000;
/** A network that has not offended for this time, ms, begins anew. */
const FORGET_MS = 600_000;

/**
 * Networks from which a connection flooded this process wait before their next one: a flood that ends and reconnects at
 * once is one flood.
 */
export class Penalties {
  readonly #penalties = new RecentMap<string, { readonly ms: number; readonly untilMs: number }>(MAX_KEYS);
  readonly #now: () => number;

  /** @param now ms, from any moment on */
  constructor(now = () => performance.now()) {
    this.#now = now;
  }

  /** A connection of this network has flooded us. */
  add(network: string): void {
    const now = this.#now();
    const before = this.#penalties.get(network);
    const isRepeated = before !== undefined && now - before.untilMs < FORGET_MS;
    const ms = isRepeated ? Math.min(MOST_PENALTY_MS, 2 * before.ms) : FIRST_PENALTY_MS;
    this.#penalties.set(network, { ms, untilMs: now + ms });
  }

  /** How long the network must still wait, ms; 0: not at all. */
  leftMs(network: string): number {
    return Math.max(0, (this.#penalties.get(network)?.untilMs ?? 0) - this.#now());
  }
}
