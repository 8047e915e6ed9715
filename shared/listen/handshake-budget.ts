import { TokenBuckets } from "../basics/rate-limit.ts";

/** A limit shared by some handshakes, for example those of one cluster's agents. Budgets take turns with each other. */
export interface HandshakeBudget {
  /** Returns whether a handshake may begin now, and then counts it. */
  take(): boolean;
  /**
   * Set in the budget of the *proven* networks at one side of a cluster: networks from which a client has shown a valid
   * credential lately. They are one source, with this name. Handshakes that such a network wastes at other clusters do
   * not delay its handshakes here.
   */
  readonly provenAs?: string | undefined;
  /** Names the limit in an error message, if it is reached. */
  readonly exhausted?: string | undefined;
}

export const UNLIMITED: HandshakeBudget = { take: () => true };

/** Bytes of handshakes without success that are allowed to each source. */
export const WASTE = { burst: 32 * 1024, perSecond: 8 * 1024 } as const;

/** The network that a handshake comes from, and the budget that it uses. */
export interface HandshakeSource {
  readonly network: string;
  readonly budget: HandshakeBudget;
}

/**
 * Counts the bytes of handshakes whose certificate is not accepted. OpenSSL verifies each signature of a chain before
 * it reports that the CA is unknown. With keys made for this attack, each takes 8 ms, and the sender computes nothing.
 * A source that owes bytes has to wait (docs/decisions/0019). The proven networks of a cluster are one source, so that
 * what they waste delays handshakes of their own cluster only.
 */
export class WastedBytes {
  readonly #bySource = new TokenBuckets(WASTE);

  /** Counts wasted bytes. Returns whether the source owes bytes now: it has used more than is allowed. */
  charge(source: HandshakeSource, bytes: number): boolean {
    if (bytes === 0) return this.owes(source); // most handshakes waste nothing, and need no account
    return this.#bySource.charge(sourceOf(source), bytes) > 0;
  }

  /** Whether the source owes bytes, and has to wait. */
  owes(source: HandshakeSource): boolean {
    return this.#bySource.owes(sourceOf(source));
  }
}

/** Names what counts as one source: a network, or all proven networks at one side of a cluster. */
export function sourceOf({ network, budget }: HandshakeSource): string {
  return budget.provenAs ?? network;
}
