import { networkOf } from "../../shared/net/source-network.ts";
import { CulvertError } from "../../shared/outcomes.ts";

/** So much of what a cluster takes may come from one address: a company's proxy stands for many agents. */
const SHARE_OF_ONE = 0.25;
/** When to come again, ms: an inner handshake takes a few round trips. */
const RETRY_MS = 1_000;

/** Carriers of which nobody knows yet whose they are: inner TLS is to tell. They are few, for each cluster and source. */
export class AnonymousCarriers {
  readonly #most: number;
  /** By cluster, and by cluster and address. */
  readonly #counts = new Map<string, number>();

  /** `most`: of one cluster. */
  constructor(most: number) {
    this.#most = most;
  }

  /** One more, until the function is called that this returns; throws `overloaded`. */
  enter(cluster: string, address: string): () => void {
    const ofOne = `${cluster} ${networkOf(address)}`;
    const mostOfOne = Math.ceil(this.#most * SHARE_OF_ONE);
    if (this.#countOf(cluster) >= this.#most || this.#countOf(ofOne) >= mostOfOne) {
      const sentence = `too many agents of cluster "${cluster}" are in their inner TLS handshake (--max-inner-handshakes)`;
      throw new CulvertError("overloaded", sentence, { retryAfterMs: RETRY_MS });
    }
    let inside = true;
    this.#add(cluster, 1);
    this.#add(ofOne, 1);
    return () => {
      if (!inside) return;
      inside = false;
      this.#add(cluster, -1);
      this.#add(ofOne, -1);
    };
  }

  #countOf(key: string): number {
    return this.#counts.get(key) ?? 0;
  }

  #add(key: string, change: number): void {
    const count = this.#countOf(key) + change;
    if (count === 0) this.#counts.delete(key);
    else this.#counts.set(key, count);
  }
}
