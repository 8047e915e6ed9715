import type { TLSSocket } from "node:tls";
import { type IdentityPattern, judgePeer, permits, shortSubject } from "../../shared/net/identity.ts";
import { sourceOf } from "../../shared/net/source.ts";
import { CulvertError } from "../../shared/outcomes.ts";
import type { ClusterTunnels } from "../tunnels/registry.ts";

/** Who sent a CONNECT, once that is known. */
export interface Caller {
  /** For logs. */
  readonly name: string;
  /** The cluster that this caller's credential belongs to. */
  readonly cluster: string;
}

/** What one door to the server asks of those who come through it. */
export type Door = UnixDoor | CallerDoor;

/** A unix socket: whoever may write to the file is a caller. */
export interface UnixDoor {
  readonly kind: "unix";
  readonly cluster: string;
  /** Of the cluster that it leads to. */
  readonly tunnels: ClusterTunnels;
}

/** Mutual TLS: a certificate of the door's CA, and a name that is allowed. */
export interface CallerDoor {
  readonly kind: "tls";
  readonly cluster: string;
  readonly tunnels: ClusterTunnels;
  /** Empty: everybody but Konnectivity's agents. */
  readonly identities: readonly IdentityPattern[];
  /** Where they are listed. */
  readonly rule: string;
  /** What speaks against whoever comes from this address, beside the name. */
  objection(address: string): CulvertError | undefined;
}

/** The caller behind a connection; else `unauthenticated`, with a sentence for whoever holds the certificate. */
export function authenticate(door: Door, socket: unknown): Caller {
  if (door.kind === "unix") return { name: "unix", cluster: door.cluster };
  const { identity, refusal } = judgePeer(socket as TLSSocket);
  if (identity === undefined) throw new CulvertError("unauthenticated", refusal);
  const name = shortSubject(identity);
  if (!permits(door.identities, "caller", identity)) {
    const rule = door.identities.length > 0 ? `is not among ${door.rule}` : "is an agent's, not a caller's";
    throw new CulvertError("unauthenticated", `the client certificate ${name} ${rule}`);
  }
  const objection = door.objection(sourceOf(socket as TLSSocket).address);
  if (objection !== undefined) throw objection;
  return { name, cluster: door.cluster };
}
