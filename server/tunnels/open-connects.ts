import { createHash } from "node:crypto";
import type { Duplex } from "node:stream";
import { Queue, QueueNode } from "../../shared/basics/collections.ts";
import type { CulvertError } from "../../shared/outcomes.ts";
import { resetSocket } from "../../shared/relay/reset.ts";
import type { PeerIdentity } from "../../shared/tls/identity.ts";
import type { TokenVerifier } from "../tokens/verifier.ts";

/** What a caller on the TLS port was admitted by. */
export type CallerProof =
  | { readonly kind: "certificate"; readonly peer: PeerIdentity }
  | { readonly kind: "token"; readonly text: string; readonly verifier: TokenVerifier };

/** A caller whose CONNECT has no answer yet. */
interface UnansweredCaller {
  /** Refuses the CONNECT; false: it has been answered. */
  refuse(refusal: CulvertError): boolean;
}

/** One CONNECT from the moment at which its caller is known to its end. */
export class OpenConnect {
  /** The address of its caller. */
  readonly address: string;
  /** Present: it goes to this cluster, which is another than its caller's. */
  targetCluster: string | undefined;
  readonly #socket: Duplex;
  readonly #pending: UnansweredCaller;
  readonly #place = new QueueNode<OpenConnect>(this);
  #admitted: AdmittedCredential | undefined;
  #refusal: CulvertError | undefined;

  constructor(address: string, socket: Duplex, pending: UnansweredCaller) {
    this.address = address;
    this.#socket = socket;
    this.#pending = pending;
  }

  /** Its caller is authenticated. */
  join(admitted: AdmittedCredential): void {
    this.#admitted = admitted;
    admitted.connects.join(this.#place);
  }

  /** The CONNECT has ended. */
  over(): void {
    this.#place.leave();
    // A core dump then shows no token of a caller that has left.
    if (this.#admitted?.connects.size === 0) this.#admitted.proof = undefined;
  }

  /** Why its caller is not permitted any more. */
  get refusal(): CulvertError | undefined {
    return this.#refusal;
  }

  /** Refuses it, or resets it if it was answered already. */
  refuse(refusal: CulvertError): void {
    if (this.#refusal !== undefined || this.#place.queue === undefined) return;
    this.#refusal = refusal;
    if (!this.#pending.refuse(refusal)) resetSocket(this.#socket);
  }
}

/** A credential and its open CONNECTs. */
export class AdmittedCredential {
  /** The proof that was verified last; absent without open CONNECTs. */
  proof: CallerProof | undefined;
  readonly connects = new Queue<OpenConnect>();
}

/**
 * Minimum number of credentials without a CONNECT that are kept: their next one often comes at once (decision 0018).
 */
const LEAST_KEPT = 64;

/** The open CONNECTs of one cluster on the callers' port, by credential (decision 0022). */
export class OpenConnects {
  readonly #admitted = new Map<string, AdmittedCredential>();
  #sweepAt = LEAST_KEPT;

  add(proof: CallerProof, connect: OpenConnect): void {
    const key = keyOf(proof);
    let admitted = this.#admitted.get(key);
    if (admitted === undefined) {
      if (this.#admitted.size >= this.#sweepAt) this.#sweep();
      admitted = new AdmittedCredential();
      this.#admitted.set(key, admitted);
    }
    admitted.proof = proof;
    connect.join(admitted);
  }

  /** Those that are open now, by credential. */
  all(): AdmittedCredential[] {
    return [...this.#admitted.values()].filter(({ connects }) => connects.size > 0);
  }

  /** Credentials that are remembered. */
  get size(): number {
    return this.#admitted.size;
  }

  /** At twice as many as are in use, so that each costs one look. */
  #sweep(): void {
    for (const [key, { connects }] of this.#admitted) if (connects.size === 0) this.#admitted.delete(key);
    this.#sweepAt = Math.max(LEAST_KEPT, 2 * this.#admitted.size);
  }
}

function keyOf(proof: CallerProof): string {
  if (proof.kind === "certificate") return proof.peer.fingerprint256;
  return createHash("sha256").update(proof.text).digest("base64");
}
