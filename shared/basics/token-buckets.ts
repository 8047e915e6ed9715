import { type BucketOptions, TokenBucket } from "./token-bucket.ts";

/** Most keys that are remembered; one more forgets the one that has taken least lately. */
const MAX_KEYS = 1_024;

/** A token bucket for each key (a network, an identity), full when its key is new. */
export class TokenBuckets {
  readonly #options: BucketOptions;
  /** The one that took last stands last. */
  readonly #buckets = new Map<string, TokenBucket>();

  constructor(options: BucketOptions) {
    this.#options = options;
  }

  /** 0: one was taken. Else how long to wait until one could be, ms. */
  take(key: string): number {
    const bucket = this.#buckets.get(key) ?? new TokenBucket(this.#options);
    this.#buckets.delete(key);
    this.#buckets.set(key, bucket);
    if (this.#buckets.size > MAX_KEYS) this.#buckets.delete(this.#buckets.keys().next().value ?? "");
    return bucket.take(1);
  }
}
