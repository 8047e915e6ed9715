import type { PeerIdentity } from "../../shared/tls/identity.ts";
import type { PeerTrust } from "./peer-trust.ts";

export interface PeerWatchOwner {
  /** The peer shall show its certificate again, on a new connection. */
  onAsk(reason: string): void;
  /** Its certificate is not accepted any more, and it has shown no other in time. */
  onUntrusted(reason: Error): void;
}

/** How often the certificate of a peer is compared with the clock and the CA, ms. */
const CHECK_MS = 30_000;
/** How long a peer may take to show a new certificate, ms. */
const PATIENCE_MS = 10_000;

/** Watches the certificate that a peer has shown, as long as a link to it or from it is open. */
export class PeerWatch {
  readonly #trust: Pick<PeerTrust, "objection" | "isRevoked">;
  readonly #owner: PeerWatchOwner;
  readonly #timer: NodeJS.Timeout;
  #identity: PeerIdentity;
  /** Present while the peer has to show another certificate. */
  #due: NodeJS.Timeout | undefined;

  constructor(identity: PeerIdentity, trust: Pick<PeerTrust, "objection" | "isRevoked">, owner: PeerWatchOwner) {
    this.#identity = identity;
    this.#trust = trust;
    this.#owner = owner;
    this.#timer = setInterval(() => this.verifyAgain(), CHECK_MS).unref();
  }

  /** The peer has shown a certificate again, which was accepted. */
  renewed(identity = this.#identity): void {
    this.#identity = identity;
    clearTimeout(this.#due);
    this.#due = undefined;
  }

  /** To be called when the CA has changed: a peer that would not be accepted now has to show another certificate. */
  verifyAgain(): void {
    const soon = new Date(Date.now() + CHECK_MS);
    const objection = this.#trust.objection(this.#identity, soon);
    if (objection === undefined || this.#due !== undefined) return;
    this.#due = setTimeout(() => this.#onUnproven(), PATIENCE_MS).unref();
    this.#owner.onAsk(`the peer's link has to be verified again: ${objection}`);
  }

  #onUnproven(): void {
    this.#due = undefined;
    const objection = this.#trust.objection(this.#identity, new Date());
    if (objection === undefined) this.verifyAgain();
    else this.#owner.onUntrusted(new Error(objection));
  }

  /** To be called when the CRLs have changed. */
  endIfRevoked(): void {
    if (this.#trust.isRevoked(this.#identity)) this.#owner.onUntrusted(new Error("its certificate is revoked"));
  }

  close(): void {
    clearInterval(this.#timer);
    clearTimeout(this.#due);
  }
}
