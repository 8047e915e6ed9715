import type { TLSSocket } from "node:tls";
import { type IdentityPattern, judgePeer, permits, shortSubject } from "../../shared/net/identity.ts";
import { CulvertError } from "../../shared/outcomes.ts";

/** Who sent a CONNECT, once that is known. */
export interface Caller {
  /** For logs. */
  readonly name: string;
  /** The cluster that this caller's credential belongs to. */
  readonly cluster: string;
}

/** What one door to the server asks of those who come through it. */
export type Door =
  /** A unix socket: whoever may write to the file is a caller. */
  | { readonly kind: "unix"; readonly cluster: string }
  /** Mutual TLS: a certificate of the door's CA, and a name that is allowed. */
  | { readonly kind: "tls"; readonly cluster: string; readonly identities: readonly IdentityPattern[] };

/** The caller behind a connection; else `unauthenticated`, with a sentence for whoever holds the certificate. */
export function authenticate(door: Door, socket: unknown): Caller {
  if (door.kind === "unix") return { name: "unix", cluster: door.cluster };
  const { identity, refusal } = judgePeer(socket as TLSSocket);
  if (identity === undefined) throw new CulvertError("unauthenticated", refusal);
  const name = shortSubject(identity);
  if (!permits(door.identities, "caller", identity)) {
    const rule = door.identities.length > 0 ? "is not among --caller-identities" : "is an agent's, not a caller's";
    throw new CulvertError("unauthenticated", `the client certificate ${name} ${rule}`);
  }
  return { name, cluster: door.cluster };
}
