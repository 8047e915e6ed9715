import type { IncomingHttpHeaders } from "node:http";
import { setTimeout as sleep } from "node:timers/promises";
import type { TLSSocket } from "node:tls";
import type { TurnQueue } from "../../shared/basics/timers.ts";
import { BEARER_CHALLENGE, presentedToken } from "../../shared/http/bearer.ts";
import type { IncomingConnection } from "../../shared/listen/incoming-connection.ts";
import { CulvertError, printable } from "../../shared/outcomes.ts";
import { CERTIFICATE_CHALLENGE, type PeerIdentity, shortSubject } from "../../shared/tls/identity.ts";
import type { ClusterVirtualHost, UnixHost } from "../cluster-runtime/virtual-host.ts";
import {
  identityRefusal,
  type PeerRules,
  TOKENS_NOT_ACCEPTED,
  type TokenBounds,
  verifyCertificate,
  verifyToken,
} from "../listeners/authenticate-peer.ts";
import type { TokenVerifier, VerificationResult } from "../tokens/verifier.ts";
import type { ClusterTunnels } from "../tunnels/cluster-tunnels.ts";
import type { AdmittedCredential, CallerProof, OpenConnect, OpenConnects } from "../tunnels/open-connects.ts";

/** The authenticated sender of a CONNECT. */
export interface Caller {
  /** For logs. */
  readonly name: string;
  /** Absent: it came over a unix socket. */
  readonly proof?: CallerProof;
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

/**
 * Authenticates a caller: by its certificate, or by a token where tokens are accepted; never by both. Rejects with
 * `unauthenticated`, `forbidden` for its address, or `overloaded` if a token cannot be verified now.
 */
export async function authenticate(
  host: CallerHost,
  connection: IncomingConnection,
  headers: IncomingHttpHeaders,
  bounds: Omit<TokenBounds, "address">,
): Promise<Caller> {
  const presented = host.kind === "tls" && host.verifier && presentedToken(headers["proxy-authorization"]);
  if (!presented) return authenticateConnection(host, connection);
  if ((connection.socket as TLSSocket).authorized) {
    throw new CulvertError("unauthenticated", "a client certificate and a token came together: send one of them");
  }
  const { address } = connection.source;
  const { identity, verifier } = await verifyToken(presented, connection, "caller", host, { ...bounds, address });
  if (host.verifier !== verifier) {
    throw new CulvertError("unauthenticated", "the rules for tokens have changed meanwhile: connect again");
  }
  const proof = { kind: "token", text: presented.token, verifier } as const;
  return accepted(host, connection, { name: `SUB=${printable(identity.subject, 100)}`, proof });
}

/** Authenticates a caller by its connection alone, for requests that are refused anyway. */
export function authenticateConnection(host: CallerHost, connection: IncomingConnection): Caller {
  if (host.kind === "unix") return { name: "unix" };
  const peer = verifyCertificate(connection, "caller", host);
  return accepted(host, connection, { name: shortSubject(peer), proof: { kind: "certificate", peer } });
}

function accepted(host: TlsCallerHost, { source }: IncomingConnection, caller: Caller): Caller {
  const objection = host.objection(source.address);
  if (objection !== undefined) throw objection;
  return caller;
}

/** The credentials that a 407 asks for (RFC 9110 §11.7.1). */
export function challenges(host: CallerHost): readonly string[] {
  const acceptsTokens = host.kind === "tls" && host.verifier !== undefined;
  return acceptsTokens ? [BEARER_CHALLENGE, 'Basic realm="culvert"'] : [CERTIFICATE_CHALLENGE];
}

/** A CONNECT that is not permitted any more ends within 5 s, of which the files and the resets take a part. */
const VERIFIED_WITHIN_MS = 4_000;
/** Tokens of one cluster that are verified at once, each by a request to a Kubernetes API. */
const TOKENS_AT_ONCE = 32;

/** A verifier that cannot answer now is asked again after this time at the earliest, ms. */
const MIN_RETRY_MS = 500;

/**
 * Verifies the credentials of a cluster's open CONNECTs again, and refuses or resets those that are not permitted any
 * more (decision 0022). Each credential is verified once, however many CONNECTs it has, and all clusters take turns.
 */
export class CallerReverification {
  readonly #turns: TurnQueue;

  constructor(turns: TurnQueue) {
    this.#turns = turns;
  }

  /** Resolves when all are verified. */
  async verify(host: ClusterVirtualHost): Promise<void> {
    const tokens: AdmittedCredential[] = [];
    for (const admitted of host.open.all()) {
      for (const connect of admitted.connects)
        this.#turns.run(() => refuseIf(connect, host.sourceObjection(connect.address)));
      const { proof } = admitted;
      if (proof?.kind === "token") tokens.push(admitted);
      else if (proof !== undefined) this.#turns.run(() => this.#refuse(admitted, certificateFault(proof.peer, host)));
    }
    if (tokens.length === 0) return;
    const signal = AbortSignal.timeout(VERIFIED_WITHIN_MS);
    const next = tokens[Symbol.iterator]();
    const worker = async (): Promise<void> => {
      for (const admitted of next) await this.#verifyToken(admitted, host, signal);
    };
    await Promise.all(Array.from({ length: TOKENS_AT_ONCE }, worker));
  }

  #refuse({ connects }: AdmittedCredential, refusal: CulvertError | undefined): void {
    if (refusal === undefined) return;
    for (const connect of connects) this.#turns.run(() => connect.refuse(refusal));
  }

  async #verifyToken(admitted: AdmittedCredential, host: ClusterVirtualHost, signal: AbortSignal): Promise<void> {
    const { proof } = admitted;
    const { verifier } = host;
    // Under unchanged rules the token needs no verification: that it may have expired ends no open connection.
    if (proof?.kind !== "token" || proof.verifier === verifier || admitted.connects.size === 0) return;
    const verdict = await verdictOf(proof.text, verifier, signal);
    // If the rules have changed once more, another run verifies by them; or a new CONNECT has just proved the token.
    if (host.verifier !== verifier || admitted.proof !== proof) return;
    if ("ok" in verdict && verifier !== undefined) admitted.proof = { ...proof, verifier };
    else if ("refused" in verdict) this.#refuse(admitted, new CulvertError("unauthenticated", verdict.refused));
  }
}

function refuseIf(connect: OpenConnect, refusal: CulvertError | undefined): void {
  if (refusal !== undefined) connect.refuse(refusal);
}

/** Why a certificate is not permitted any more; its dates do not count. */
function certificateFault(peer: PeerIdentity, host: ClusterVirtualHost): CulvertError | undefined {
  const status = host.trust.status(peer.chain);
  if (status === "valid") return identityRefusal(peer, "caller", host);
  const why = status === "revoked" ? "is revoked" : "is not signed by a CA that is still accepted here";
  const sentence = `the client certificate ${shortSubject(peer)} ${why}`;
  return new CulvertError("unauthenticated", sentence);
}

/** Asks until there is an answer. A token that cannot be verified in time is refused. */
async function verdictOf(
  token: string,
  verifier: TokenVerifier | undefined,
  signal: AbortSignal,
): Promise<VerificationResult> {
  if (verifier === undefined) return { refused: TOKENS_NOT_ACCEPTED };
  for (;;) {
    try {
      const verdict = await verifier.verify(token, { signal });
      if (!("unavailable" in verdict)) return verdict;
      await sleep(Math.max(MIN_RETRY_MS, verdict.retryAfterMs), undefined, { signal });
    } catch {
      return {
        refused: "the rules for tokens have changed, and nobody could verify this one by the new rules in time",
      };
    }
  }
}
