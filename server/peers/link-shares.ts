import { CulvertError } from "../../shared/outcomes.ts";

const RETRY_AFTER_MS = 1_000;

/**
 * The streams of each cluster on one link to a peer. Clusters share the link, and `--max-streams` bounds all its
 * streams together: a cluster gets as many as it leaves free, so that the others always find room. One alone has half
 * of them at most, each of two a third.
 */
export class LinkShares {
  readonly #serverId: string;
  readonly #maxStreams: number;
  #total = 0;
  readonly #open = new Map<string, number>();

  /** @param maxStreams how many streams the link carries at once */
  constructor(serverId: string, maxStreams: number) {
    this.#serverId = serverId;
    this.#maxStreams = maxStreams;
  }

  /** Counts one stream until the function that it returns is called. Throws `limited`. */
  enter(cluster: string): () => void {
    const open = this.#open.get(cluster) ?? 0;
    if (open >= Math.max(1, this.#maxStreams - this.#total)) {
      const sentence = `cluster "${cluster}" has ${open} connections over server "${this.#serverId}", and the link to it keeps room for others (--max-streams): try again later`;
      throw new CulvertError("limited", sentence, { retryAfterMs: RETRY_AFTER_MS });
    }
    this.#open.set(cluster, open + 1);
    this.#total++;
    return () => this.#leave(cluster);
  }

  /** Clusters without a stream are not kept. */
  #leave(cluster: string): void {
    this.#total--;
    const open = this.#open.get(cluster) ?? 0;
    if (open > 1) this.#open.set(cluster, open - 1);
    else this.#open.delete(cluster);
  }

  /** Clusters that have a stream. */
  get size(): number {
    return this.#open.size;
  }
}
