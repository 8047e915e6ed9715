import { TokenBuckets } from "../basics/rate-limit.ts";

/** A limit that some handshakes share, as those of one cluster's agents do. Budgets take turns with each other. */
export interface HandshakeBudget {
  /** Counts one handshake if it may begin now. */
  take(): boolean;
  /** A credential was proved from this address: what other clients do elsewhere does not keep these clients out. */
  readonly isProven?: boolean;
  /** What its handshakes waste; absent: only their network's account counts it. */
  readonly waste?: TokenBuckets;
  /** The limit that was reached, for a sentence. */
  readonly exhausted?: string | undefined;
}

export const UNLIMITED: HandshakeBudget = { take: () => true };

/** Bytes of handshakes that come to nothing, of one network at one side of a cluster, or of all its proven networks. */
export const WASTE = { burst: 32 * 1024, perSecond: 8 * 1024 } as const;
/** The same of one network at all clusters together, where it has proved no credential. */
const WASTE_OF_NETWORK = { burst: 2 * WASTE.burst, perSecond: 4 * WASTE.perSecond } as const;

/** Whose handshake it is. */
export interface HandshakeSource {
  readonly network: string;
  readonly budget: HandshakeBudget;
}

/**
 * Counts the bytes of handshakes whose certificate is not accepted. OpenSSL verifies each signature of a chain before
 * it says that its CA is not known, and that of a key made for it takes 8 ms, while whoever sends the chain computes
 * nothing. Who owes bytes has to wait (docs/decisions/0019). Networks that have proved a credential of a cluster share
 * an account there, so that what they waste is their own cluster's loss, and no other one's.
 */
export class WastedBytes {
  readonly #byNetwork = new TokenBuckets(WASTE_OF_NETWORK);

  /** Returns whether more is owed now than was free. */
  charge({ network, budget }: HandshakeSource, bytes: number): boolean {
    const ofBudget = budget.waste?.charge(keyOf(network, budget), bytes) ?? 0;
    const ofNetwork = budget.isProven === true ? 0 : this.#byNetwork.charge(network, bytes);
    return ofBudget > 0 || ofNetwork > 0;
  }

  owes({ network, budget }: HandshakeSource): boolean {
    if (budget.waste?.owes(keyOf(network, budget)) === true) return true;
    return budget.isProven !== true && this.#byNetwork.owes(network);
  }
}

function keyOf(network: string, { isProven }: HandshakeBudget): string {
  return isProven === true ? "proven" : network;
}
