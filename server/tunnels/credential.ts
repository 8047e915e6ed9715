import type { PeerIdentity } from "../../shared/tls/identity.ts";
import type { TokenIdentity, TokenVerifier } from "../tokens/verifier.ts";

/** What an agent has proved. */
export interface Credential {
  /** Whom it names: stays the same when the certificate or token is renewed. */
  readonly identity: string;
  /** What its certificate says, if it is one, and the CA by which it was judged. */
  readonly peer: PeerIdentity | undefined;
  readonly ca: string | undefined;
  /** If it is a token: judged again while the tunnel stands. */
  readonly token: ProvenToken | undefined;
}

export interface ProvenToken {
  readonly text: string;
  readonly identity: TokenIdentity;
  /** By the rules that are in force when it is asked. */
  readonly verifier: Pick<TokenVerifier, "verify">;
}
