import { TokenBuckets } from "../basics/rate-limit.ts";

/** A limit shared by some handshakes, for example those of one cluster's agents. Budgets take turns with each other. */
export interface HandshakeBudget {
  /** Returns whether a handshake may begin now, and then counts it. */
  take(): boolean;
  /**
   * Set in the budget of the *proven* networks at one side of a cluster: those from which a client has shown a valid
   * credential lately. They are one source, with this name. What such a network wastes at other clusters does not delay
   * its handshakes here.
   */
  readonly provenAs?: string | undefined;
  /** Counts what the handshakes of this budget waste; absent: only the account of their network counts it. */
  readonly waste?: TokenBuckets;
  /** Names the limit in an error message, if it is reached. */
  readonly exhausted?: string | undefined;
}

export const UNLIMITED: HandshakeBudget = { take: () => true };

/**
 * Bytes of handshakes without success that are allowed at one side of a cluster (its agents or its callers): to each
 * network, and to all proven networks together.
 */
export const WASTE = { burst: 32 * 1024, perSecond: 8 * 1024 } as const;
/** Bytes that are allowed to one network at all clusters together, except where it is proven. */
const WASTE_OF_NETWORK = { burst: 2 * WASTE.burst, perSecond: 4 * WASTE.perSecond } as const;

/** The network that a handshake comes from, and the budget that it uses. */
export interface HandshakeSource {
  readonly network: string;
  readonly budget: HandshakeBudget;
}

/**
 * Counts the bytes of handshakes whose certificate is not accepted. OpenSSL verifies each signature of a chain before
 * it reports that the CA is unknown. With keys made for this attack, each takes 8 ms, and the sender computes nothing.
 * A network that owes bytes has to wait (docs/decisions/0019). The proven networks of a cluster share one account, so
 * that what they waste delays handshakes of their own cluster only.
 */
export class WastedBytes {
  readonly #byNetwork = new TokenBuckets(WASTE_OF_NETWORK);

  /** Counts wasted bytes. Returns whether the source owes bytes now: it has used more than is allowed. */
  charge({ network, budget }: HandshakeSource, bytes: number): boolean {
    if (bytes === 0) return this.owes({ network, budget }); // most handshakes waste nothing, and need no account
    const ofBudget = budget.waste?.charge(sourceOf({ network, budget }), bytes) ?? 0;
    const ofNetwork = budget.provenAs !== undefined ? 0 : this.#byNetwork.charge(network, bytes);
    return ofBudget > 0 || ofNetwork > 0;
  }

  /** Whether the source owes bytes, and has to wait. */
  owes({ network, budget }: HandshakeSource): boolean {
    if (budget.waste?.owes(sourceOf({ network, budget })) === true) return true;
    return budget.provenAs === undefined && this.#byNetwork.owes(network);
  }
}

/** Gives bytes back to the budget of a handshake: its client has proved itself by a token. */
export function giveBack(source: HandshakeSource, bytes: number): void {
  source.budget.waste?.charge(sourceOf(source), -bytes);
}

/** Names what counts as one source: a network, or all proven networks at one side of a cluster. */
export function sourceOf({ network, budget }: HandshakeSource): string {
  return budget.provenAs ?? network;
}
