import { createHash } from "node:crypto";
import { Queue, type QueueNode } from "../../shared/basics/collections.ts";
import type { CulvertError } from "../../shared/outcomes.ts";
import type { PeerIdentity } from "../../shared/tls/identity.ts";
import type { TokenVerifier } from "../tokens/verifier.ts";

/** The credential by which a caller on the TLS port was admitted. */
export type CallerProof =
  | { readonly kind: "certificate"; readonly peer: PeerIdentity }
  | { readonly kind: "token"; readonly text: string; readonly verifier: TokenVerifier };

/** One CONNECT from the moment at which its caller is known to its end. */
export interface OpenConnect {
  /** The place of this CONNECT among those of its credential. */
  readonly place: QueueNode<OpenConnect>;
  /** The address of its caller. */
  readonly address: string;
  /** Present: it goes to this cluster, which is another than its caller's. */
  readonly targetCluster: string | undefined;
  /** Ends the CONNECT, unless it is over: its caller is not permitted any more. */
  refuse(refusal: CulvertError): void;
}

/** A credential and its open CONNECTs. */
export class AdmittedCredential {
  /** The proof that was verified last; absent without open CONNECTs. */
  proof: CallerProof | undefined;
  readonly connects = new Queue<OpenConnect>();

  /** The CONNECT has ended. */
  leave({ place }: OpenConnect): void {
    place.leave();
    // A core dump then shows no token of a caller that has left.
    if (this.connects.size === 0) this.proof = undefined;
  }
}

/**
 * Minimum number of credentials without a CONNECT that are kept: their next one often comes at once (decision 0018).
 */
const LEAST_KEPT = 64;

/** The open CONNECTs of one cluster on the callers' port, by credential (decision 0022). */
export class OpenConnects {
  readonly #admitted = new Map<string, AdmittedCredential>();
  #sweepAt = LEAST_KEPT;

  /** Returns the credential, which the CONNECT leaves at its end. */
  join(proof: CallerProof, connect: OpenConnect): AdmittedCredential {
    const key = keyOf(proof);
    let admitted = this.#admitted.get(key);
    if (admitted === undefined) {
      if (this.#admitted.size >= this.#sweepAt) this.#sweep();
      admitted = new AdmittedCredential();
      this.#admitted.set(key, admitted);
    }
    admitted.proof = proof;
    admitted.connects.join(connect.place);
    return admitted;
  }

  /** The CONNECTs that are open now, by credential. */
  all(): AdmittedCredential[] {
    return [...this.#admitted.values()].filter(({ connects }) => connects.size > 0);
  }

  /** Credentials that are remembered. */
  get size(): number {
    return this.#admitted.size;
  }

  /**
   * Unused entries are removed when there are twice as many entries as used ones, so that each entry is visited once.
   */
  #sweep(): void {
    for (const [key, { connects }] of this.#admitted) if (connects.size === 0) this.#admitted.delete(key);
    this.#sweepAt = Math.max(LEAST_KEPT, 2 * this.#admitted.size);
  }
}

function keyOf(proof: CallerProof): string {
  if (proof.kind === "certificate") return proof.peer.fingerprint256;
  return createHash("sha256").update(proof.text).digest("base64");
}
