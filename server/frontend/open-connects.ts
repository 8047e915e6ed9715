import type { Duplex } from "node:stream";
import type { PeerIdentity } from "../../shared/net/identity.ts";
import { resetSocket } from "../../shared/net/reset.ts";
import type { CulvertError } from "../../shared/outcomes.ts";
import type { TokenVerifier } from "../tokens/verifier.ts";
import type { PendingCaller } from "./pending.ts";

/** What a caller on the TLS port was admitted by. */
export type CallerProof =
  | { readonly kind: "certificate"; readonly peer: PeerIdentity }
  | { readonly kind: "token"; readonly text: string; readonly verifier: TokenVerifier };

/** One CONNECT from the moment at which its caller is known to its end. */
export class OpenConnect {
  /** Of its caller. */
  readonly address: string;
  readonly #socket: Duplex;
  readonly #pending: Pick<PendingCaller, "refuse">;
  #refusal: CulvertError | undefined;

  constructor(address: string, socket: Duplex, pending: Pick<PendingCaller, "refuse">) {
    this.address = address;
    this.#socket = socket;
    this.#pending = pending;
  }

  /** Why its caller would not be admitted any more. */
  get refusal(): CulvertError | undefined {
    return this.#refusal;
  }

  /** It is refused, or reset if it was answered already. */
  refuse(refusal: CulvertError): void {
    if (this.#refusal !== undefined) return;
    this.#refusal = refusal;
    if (!this.#pending.refuse(refusal)) resetSocket(this.#socket);
  }
}

/** The open CONNECTs of one credential; what is known of that is held once for all of them. */
export class Admitted {
  /** By what the last of them was admitted, or all were verified again. */
  proof: CallerProof;
  readonly connects = new Set<OpenConnect>();

  constructor(proof: CallerProof) {
    this.proof = proof;
  }
}

/** The CONNECTs that are open on one cluster's callers' port, by what they were admitted by (decision 0022). */
export class OpenConnects {
  readonly #admitted = new Map<string, Admitted>();

  /** The way out, to be called once the CONNECT is over. */
  add(proof: CallerProof, connect: OpenConnect): () => void {
    const key = proof.kind === "token" ? `token ${proof.text}` : proof.peer.fingerprint256;
    const admitted = this.#admitted.get(key) ?? new Admitted(proof);
    this.#admitted.set(key, admitted);
    admitted.proof = proof;
    admitted.connects.add(connect);
    return () => {
      if (admitted.connects.delete(connect) && admitted.connects.size === 0) this.#admitted.delete(key);
    };
  }

  /** Those that are open now, by credential. */
  all(): Admitted[] {
    return [...this.#admitted.values()];
  }
}
