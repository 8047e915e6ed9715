import type { IncomingHttpHeaders } from "node:http";
import type { TLSSocket } from "node:tls";
import { presentedToken } from "../../shared/net/bearer.ts";
import { type IdentityPattern, judgePeer, permits, shortSubject } from "../../shared/net/identity.ts";
import { sourceOf } from "../../shared/net/source.ts";
import { judgedByCa } from "../../shared/net/tls.ts";
import { CulvertError, printable } from "../../shared/outcomes.ts";
import type { TokenVerifier } from "../tokens/verifier.ts";
import { inTime } from "../tunnels/identify.ts";
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
  /** By which certificates are judged now. */
  readonly ca: string | undefined;
  /** Present: tokens are taken. */
  readonly verifier: TokenVerifier | undefined;
  /** What speaks against whoever comes from this address, beside the name. */
  objection(address: string): CulvertError | undefined;
}

/**
 * The caller behind a connection: by its certificate, or by a token where tokens are taken; never by both. Rejects with
 * `unauthenticated` and a sentence for whoever holds the credential; with `overloaded` if nobody can judge its token now.
 */
export async function authenticate(
  door: Door,
  socket: unknown,
  headers: IncomingHttpHeaders,
  signal: () => AbortSignal,
): Promise<Caller> {
  const presented = door.kind === "tls" && door.verifier && presentedToken(headers["proxy-authorization"]);
  if (!presented) return authenticateSocket(door, socket);
  if ((socket as TLSSocket).authorized) {
    throw new CulvertError("unauthenticated", "a client certificate and a token came together: send one of them");
  }
  if (presented.cluster !== undefined && presented.cluster !== door.cluster) {
    const named = printable(presented.cluster, 64);
    throw new CulvertError(
      "unauthenticated",
      `the token came with the name of cluster "${named}", which is not served here`,
    );
  }
  const aborted = signal();
  const verdict = await inTime(door.verifier.verify(presented.token, aborted), aborted);
  if ("refused" in verdict) throw new CulvertError("unauthenticated", verdict.refused);
  if ("unavailable" in verdict) {
    const { unavailable, retryAfterMs, detail } = verdict;
    throw new CulvertError("overloaded", unavailable, { retryAfterMs, cause: new Error(detail) });
  }
  return admitted(door, `SUB=${printable(verdict.ok.subject, 100)}`, socket);
}

/** The same by what the connection itself shows: for requests that get no further anyway. */
export function authenticateSocket(door: Door, socket: unknown): Caller {
  if (door.kind === "unix") return { name: "unix", cluster: door.cluster };
  const { identity, refusal } = judgePeer(socket as TLSSocket);
  if (identity === undefined) {
    const or = door.verifier === undefined ? "" : ", and no token (Proxy-Authorization: Bearer)";
    throw new CulvertError("unauthenticated", `${refusal}${or}`);
  }
  const by = judgedByCa(socket as TLSSocket);
  if (by !== undefined && by !== door.ca) {
    throw new CulvertError("unauthenticated", "the CA of this cluster has changed during the handshake: connect again");
  }
  const name = shortSubject(identity);
  if (!permits(door.identities, "caller", identity)) {
    const rule = door.identities.length > 0 ? `is not among ${door.rule}` : "is an agent's, not a caller's";
    throw new CulvertError("unauthenticated", `the client certificate ${name} ${rule}`);
  }
  return admitted(door, name, socket);
}

function admitted(door: CallerDoor, name: string, socket: unknown): Caller {
  const objection = door.objection(sourceOf(socket as TLSSocket).address);
  if (objection !== undefined) throw objection;
  return { name, cluster: door.cluster };
}
