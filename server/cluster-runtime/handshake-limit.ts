import { networkOf } from "../../shared/address/network.ts";
import { RecentMap } from "../../shared/basics/collections.ts";
import type { TokenBucket } from "../../shared/basics/rate-limit.ts";
import type { HandshakeBudget } from "../../shared/listen/handshake-budget.ts";

/** Time for which a network is proven after a client from it has shown a valid credential, ms. */
const PROOF_MS = 600_000;
/** Maximum number of proven networks for one side of a cluster; the oldest proof makes room for a new one. */
const MAX_PROOFS = 1_024;

/** Number of limits made in this process, for the names of their proven networks. */
let limits = 0;

/**
 * Limits the TLS handshakes at one side of a cluster: those of its agents, or of its callers. Networks from which a
 * client has shown a valid credential lately (*proven* networks) have a budget of their own, so that a flood of
 * unauthenticated clients does not keep them out.
 */
export class HandshakeLimit {
  readonly #unproven: Budget;
  readonly #proven: Budget;
  /** Time of the last proof of each network, the oldest first. */
  readonly #provedAt = new RecentMap<string, number>(MAX_PROOFS);

  /** `onReached` is called when a client has reached the limit and has to wait. */
  constructor(onReached: () => void) {
    this.#unproven = new Budget(onReached, undefined);
    this.#proven = new Budget(onReached, `proven ${++limits}`);
  }

  /** Gives each budget a bucket of its own; `undefined` removes the limit. `sentence` names the limit in refusals. */
  set(bucketOf: () => TokenBucket | undefined, sentence: string): void {
    for (const budget of [this.#unproven, this.#proven]) {
      budget.bucket = bucketOf();
      budget.sentence = sentence;
    }
  }

  budgetFor(address: string): HandshakeBudget {
    const provedAt = this.#provedAt.get(networkOf(address)) ?? Number.NEGATIVE_INFINITY;
    return performance.now() - provedAt < PROOF_MS ? this.#proven : this.#unproven;
  }

  /** Records that a client from this address has shown a valid credential of this cluster. */
  proved(address: string): void {
    this.#provedAt.set(networkOf(address), performance.now());
  }
}

class Budget implements HandshakeBudget {
  bucket: TokenBucket | undefined;
  sentence = "";
  readonly provenAs: string | undefined;
  readonly #onReached: () => void;
  #isExhausted = false;

  constructor(onReached: () => void, provenAs: string | undefined) {
    this.#onReached = onReached;
    this.provenAs = provenAs;
  }

  get exhausted(): string | undefined {
    return this.#isExhausted && this.bucket !== undefined ? this.sentence : undefined;
  }

  take(): boolean {
    const wasExhausted = this.#isExhausted;
    this.#isExhausted = (this.bucket?.take(1) ?? 0) > 0;
    if (this.#isExhausted && !wasExhausted) this.#onReached();
    return !this.#isExhausted;
  }
}
