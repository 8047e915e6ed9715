import { networkOf } from "../../shared/address/network.ts";
import type { TokenBucket } from "../../shared/basics/token-bucket.ts";
import type { HandshakeBudget } from "../../shared/listen/handshake-queue.ts";

/** A network that has proved a credential is remembered for so long after the last proof, ms. */
const PROOF_MS = 600_000;
/** A newer proof is noted when the one before is older than this, ms: connections come by the thousand a second. */
const RENEW_MS = 60_000;
/** Most networks that are remembered of one side of a cluster; the oldest proof is forgotten for a newer one. */
const MAX_PROOFS = 1_024;

export interface HandshakeLimitOptions {
  /** The limit was reached by a client that had to wait. */
  onReached(): void;
  /** Milliseconds. */
  readonly now?: () => number;
}

/**
 * The TLS handshakes of one cluster's agents, or of its callers. Networks from which a credential was proved lately
 * have a budget of their own and take turns with all others together: a flood by clients that prove nothing keeps none
 * of the known ones out.
 */
export class HandshakeLimit {
  readonly #options: HandshakeLimitOptions;
  readonly #unproven: Budget;
  readonly #proven: Budget;
  /** When a network last proved a credential, the oldest first. */
  readonly #provedAt = new Map<string, number>();

  constructor(options: HandshakeLimitOptions) {
    this.#options = options;
    this.#unproven = new Budget(options, false);
    this.#proven = new Budget(options, true);
  }

  /** There is a limit now. */
  get isSet(): boolean {
    return this.#unproven.bucket !== undefined;
  }

  /** Each budget gets a bucket of its own; `undefined`: no limit. `sentence` names the limit. */
  set(bucketOf: () => TokenBucket | undefined, sentence: string): void {
    for (const budget of [this.#unproven, this.#proven]) {
      budget.bucket = bucketOf();
      budget.sentence = sentence;
    }
  }

  budgetFor(address: string): HandshakeBudget {
    const provedAt = this.#provedAt.get(networkOf(address)) ?? Number.NEGATIVE_INFINITY;
    return this.#now() - provedAt < PROOF_MS ? this.#proven : this.#unproven;
  }

  /** A client from this address has proved a credential of this cluster. */
  proved(address: string): void {
    const network = networkOf(address);
    const now = this.#now();
    const before = this.#provedAt.get(network);
    if (before !== undefined && now - before < RENEW_MS) return;
    this.#provedAt.delete(network);
    this.#provedAt.set(network, now);
    if (this.#provedAt.size > MAX_PROOFS) this.#provedAt.delete(this.#provedAt.keys().next().value ?? "");
  }

  #now(): number {
    return this.#options.now?.() ?? performance.now();
  }
}

class Budget implements HandshakeBudget {
  bucket: TokenBucket | undefined;
  sentence = "";
  readonly isProven: boolean;
  readonly #options: HandshakeLimitOptions;
  #isExhausted = false;

  constructor(options: HandshakeLimitOptions, isProven: boolean) {
    this.#options = options;
    this.isProven = isProven;
  }

  get exhausted(): string | undefined {
    return this.#isExhausted && this.bucket !== undefined ? this.sentence : undefined;
  }

  take(): boolean {
    const wasExhausted = this.#isExhausted;
    this.#isExhausted = (this.bucket?.take(1) ?? 0) > 0;
    if (this.#isExhausted && !wasExhausted) this.#options.onReached();
    return !this.#isExhausted;
  }
}
