import type { IncomingHttpHeaders } from "node:http";
import type { TLSSocket } from "node:tls";
import { BEARER_CHALLENGE, presentedToken } from "../../shared/http/bearer.ts";
import type { IncomingConnection } from "../../shared/listen/incoming-connection.ts";
import { CulvertError, printable } from "../../shared/outcomes.ts";
import { CERTIFICATE_CHALLENGE, shortSubject } from "../../shared/tls/identity.ts";
import type { CallerProof, OpenConnects } from "../cluster-runtime/open-connects.ts";
import type { UnixHost } from "../cluster-runtime/virtual-host.ts";
import { authenticateByCertificate, authenticateByToken, type PeerRules } from "../listeners/authenticate-peer.ts";
import type { ClusterTunnels } from "../tunnels/cluster-tunnels.ts";
import type { ServerContext } from "../tunnels/context.ts";

/** The authenticated sender of a CONNECT. */
export interface Caller {
  /** For logs. */
  readonly name: string;
  /** Absent: it came over a unix socket. */
  readonly proof?: CallerProof;
  /** The whole subject of its token. */
  readonly subject?: string;
}

/** Where callers connect to: a cluster's unix socket, or its virtual host on the callers' TLS port. */
export type CallerHost = UnixHost | TlsCallerHost;

interface TlsCallerHost extends PeerRules {
  readonly kind: "tls";
  readonly tunnels: ClusterTunnels;
  /** The open CONNECTs of its callers. */
  readonly open: OpenConnects;
  /** Why no peer from this address is accepted, whatever its credential. */
  objection(address: string): CulvertError | undefined;
}

/** The credential of a caller: that of its connection, or one that came with the CONNECT. */
export interface CallerCredential {
  readonly host: CallerHost;
  /** Rejects with `unauthenticated`, `forbidden` for its address, or `overloaded` if it cannot be verified now. */
  verify(): Promise<Caller>;
  /** The caller's trace (W3C Trace Context §3.2), as it came with the CONNECT. */
  readonly traceparent?: string | undefined;
}

/**
 * Authenticates a caller: by its certificate, or by a token where tokens are accepted; never by both. Rejects with
 * `unauthenticated`, `forbidden` for its address, or `overloaded` if a token cannot be verified now.
 */
export async function authenticateCaller(
  host: CallerHost,
  connection: IncomingConnection,
  headers: IncomingHttpHeaders,
  { options }: ServerContext,
): Promise<Caller> {
  const presented = host.kind === "tls" && host.verifier && presentedToken(headers["proxy-authorization"]);
  if (!presented) return authenticateWithoutToken(host, connection);
  if ((connection.socket as TLSSocket).authorized) {
    throw new CulvertError("unauthenticated", "a client certificate and a token came together: send one of them");
  }
  const { address } = connection.source;
  const { identity, verifier } = await authenticateByToken(presented, connection, "caller", host, {
    address,
    deadlineMs: options.connectTimeoutMs,
    most: options.maxTokenVerifications,
  });
  if (host.verifier !== verifier) {
    throw new CulvertError("unauthenticated", "the rules for tokens have changed meanwhile: connect again");
  }
  requirePermittedAddress(host, connection);
  const proof = { kind: "token", text: presented.token, verifier } as const;
  return { name: `SUB=${printable(identity.subject, 100)}`, subject: identity.subject, proof };
}

/**
 * Authenticates a caller by its certificate, or as a process that may write to the unix socket. A request that is no
 * CONNECT is authenticated like this even where it has a token: it is refused anyway, and no token is verified for it.
 */
export function authenticateWithoutToken(host: CallerHost, connection: IncomingConnection): Caller {
  if (host.kind === "unix") return { name: "unix" };
  const peer = authenticateByCertificate(connection, "caller", host);
  requirePermittedAddress(host, connection);
  return { name: shortSubject(peer), proof: { kind: "certificate", peer } };
}

function requirePermittedAddress(host: TlsCallerHost, { source }: IncomingConnection): void {
  const objection = host.objection(source.address);
  if (objection !== undefined) throw objection;
}

/** Ask for a token in a 407 (RFC 9110 §11.7.1). */
export const TOKEN_CHALLENGES: readonly string[] = [BEARER_CHALLENGE, 'Basic realm="culvert"'];

/** The credentials that a 407 asks for. */
export function challenges(host: CallerHost): readonly string[] {
  const acceptsTokens = host.kind === "tls" && host.verifier !== undefined;
  return acceptsTokens ? TOKEN_CHALLENGES : [CERTIFICATE_CHALLENGE];
}
