import { TokenBucket } from "../../shared/token-bucket.ts";

/** Agents of one cluster that may come at once from behind one address, as after its path was cut (`--max-agents`). */
const BURST = 100;
/** What one client of an API server may ask of it by client-go's default. */
const PER_SECOND = 50;
/** Networks that are remembered; one more forgets the one that has asked least lately. */
const MAX_NETWORKS = 1_024;

/** How many tokens each network may have looked at in a second: each costs a question, or a signature. */
export class QuestionBudget {
  /** The one that asked last stands last. */
  readonly #buckets = new Map<string, TokenBucket>();

  /** 0: one question may be asked, and was counted. Else how long to wait, ms. */
  take(network: string): number {
    const bucket = this.#buckets.get(network) ?? new TokenBucket({ perSecond: PER_SECOND, burst: BURST });
    this.#buckets.delete(network);
    this.#buckets.set(network, bucket);
    if (this.#buckets.size > MAX_NETWORKS) this.#buckets.delete(this.#buckets.keys().next().value ?? "");
    return bucket.take(1);
  }
}
