import type { IncomingHttpHeaders } from "node:http";
import type { Socket } from "node:net";
import type { Duplex } from "node:stream";
import type { TLSSocket } from "node:tls";
import { networkOf } from "../../shared/address/network.ts";
import { BEARER_CHALLENGE, presentedToken } from "../../shared/http/bearer.ts";
import { IncomingConnection, sourceOf } from "../../shared/listen/incoming-connection.ts";
import type { Endpoint } from "../../shared/listen/proxy-protocol.ts";
import { CulvertError, printable } from "../../shared/outcomes.ts";
import {
  CERTIFICATE_CHALLENGE,
  type IdentityPattern,
  type PeerIdentity,
  permits,
  shortSubject,
  verifyPeer,
} from "../../shared/tls/identity.ts";
import { inTime, mustName } from "../agents/identify.ts";
import type { UnixHost } from "../cluster-runtime/virtual-host.ts";
import type { TokenVerifier, VerificationResult } from "../tokens/verifier.ts";
import type { CallerProof, OpenConnects } from "../tunnels/open-connects.ts";
import type { ClusterTunnels } from "../tunnels/registry.ts";

/** Who sent a CONNECT, once that is known. */
export interface Caller {
  /** For logs. */
  readonly name: string;
  /** Absent: it came over a unix socket. */
  readonly proof?: CallerProof;
}

/** What one door to the server asks of those who come through it. */
export type Door = UnixHost | CallerDoor;

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
  /** What the CRLs say against a certificate of that CA; continues "the client certificate". */
  crlFault(peer: PeerIdentity): string | undefined;
  /** Those who came through it and are still here. */
  readonly open: OpenConnects;
  /** What speaks against whoever comes from this address, beside the name. */
  objection(address: string): CulvertError | undefined;
  /** A client from this address has proved a credential. */
  proved?(address: string): void;
}

/** How long the verification of a caller's token may take, and how many callers of one cluster may wait for theirs. */
export interface TokenBounds {
  readonly deadlineMs: number;
  readonly most: number;
}

/**
 * The caller behind a connection: by its certificate, or by a token where tokens are taken; never by both. Rejects with
 * `unauthenticated` and a sentence for whoever holds the credential; with `overloaded` if nobody can judge its token now.
 */
export async function authenticate(
  door: Door,
  socket: Duplex,
  headers: IncomingHttpHeaders,
  bounds: TokenBounds,
): Promise<Caller> {
  const presented = door.kind === "tls" && door.verifier && presentedToken(headers["proxy-authorization"]);
  if (!presented) return authenticateSocket(door, socket);
  if ((socket as TLSSocket).authorized) {
    throw new CulvertError("unauthenticated", "a client certificate and a token came together: send one of them");
  }
  mustName(presented, door.cluster);
  const { verifier } = door;
  const verdict = await verifyToken(presented.token, socket as TLSSocket, door, bounds);
  if ("refused" in verdict) throw new CulvertError("unauthenticated", verdict.refused, { fault: verdict.fault });
  if ("unavailable" in verdict) {
    const { unavailable, retryAfterMs, detail } = verdict;
    throw new CulvertError("overloaded", unavailable, { retryAfterMs, cause: new Error(detail) });
  }
  if (verifier === undefined || door.verifier !== verifier) {
    throw new CulvertError("unauthenticated", "the rules for tokens have changed meanwhile: connect again");
  }
  door.proved?.(sourceOf(socket as TLSSocket).address);
  const proof = { kind: "token", text: presented.token, verifier } as const;
  return admitted(door, `SUB=${printable(verdict.ok.subject, 100)}`, proof, socket);
}

async function verifyToken(
  token: string,
  socket: Socket,
  door: CallerDoor,
  bounds: TokenBounds,
): Promise<VerificationResult> {
  const { verifier } = door;
  if (verifier === undefined) return { refused: "tokens are not taken here any more" };
  const network = networkOf(sourceOf(socket).address);
  const sentence = `too many tokens of callers of cluster "${door.cluster}" are being verified (--max-judged-agents): the oldest was dropped`;
  return await door.tunnels.verifying.callers.run({ socket, network }, { ...bounds, sentence }, (signal) =>
    inTime(verifier.verify(token, { signal, network }), signal),
  );
}

/** What whoever could not prove himself is asked for (RFC 9110 §11.7.1). */
export function challenges(door: Door): readonly string[] {
  const takesTokens = door.kind === "tls" && door.verifier !== undefined;
  return takesTokens ? [BEARER_CHALLENGE, 'Basic realm="culvert"'] : [CERTIFICATE_CHALLENGE];
}

/** The same by what the connection itself shows: for requests that get no further anyway. */
export function authenticateSocket(door: Door, socket: unknown): Caller {
  if (door.kind === "unix") return { name: "unix" };
  const by = IncomingConnection.of(socket as TLSSocket)?.verifiedBy;
  const { identity, refusal: why, fault: credentialFault } = verifyPeer(socket as TLSSocket, by);
  if (identity === undefined) {
    const or = door.verifier === undefined ? "" : ", and no token (Proxy-Authorization: Bearer)";
    throw new CulvertError("unauthenticated", `${why}${or}`, { fault: credentialFault });
  }
  if (by !== undefined && by !== door.ca) {
    throw new CulvertError("unauthenticated", "the CA of this cluster has changed during the handshake: connect again");
  }
  const fault = door.crlFault(identity);
  if (fault !== undefined) throw new CulvertError("unauthenticated", `the client certificate ${fault}`);
  const refusal = notPermitted(door, identity);
  if (refusal !== undefined) throw refusal;
  return admitted(door, shortSubject(identity), { kind: "certificate", peer: identity }, socket);
}

/** Why a certificate, whoever has signed it, opens this door to nobody. */
export function notPermitted(
  { identities, rule }: Pick<CallerDoor, "identities" | "rule">,
  peer: PeerIdentity,
): CulvertError | undefined {
  if (permits(identities, "caller", peer)) return undefined;
  const why = identities.length > 0 ? `is not among ${rule}` : "is an agent's, not a caller's";
  return new CulvertError("unauthenticated", `the client certificate ${shortSubject(peer)} ${why}`);
}

/** Where a connection comes from, a balancer's word before the kernel's; a unix socket has no address. */
export function callerSource(door: Door, socket: unknown): Endpoint | undefined {
  return door.kind === "unix" ? undefined : sourceOf(socket as TLSSocket);
}

function admitted(door: CallerDoor, name: string, proof: CallerProof, socket: unknown): Caller {
  const objection = door.objection(sourceOf(socket as TLSSocket).address);
  if (objection !== undefined) throw objection;
  return { name, proof };
}
