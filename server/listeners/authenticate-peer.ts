import type { Socket } from "node:net";
import { networkOf } from "../../shared/address/network.ts";
import type { PresentedToken } from "../../shared/http/bearer.ts";
import type { HandshakeBudget } from "../../shared/listen/handshake-budget.ts";
import { CulvertError, printable } from "../../shared/outcomes.ts";
import type { ClientTrust } from "../../shared/tls/client-trust.ts";
import {
  type IdentityPattern,
  type PeerIdentity,
  permits,
  shortSubject,
  subjectOf,
  verifyPeer,
} from "../../shared/tls/identity.ts";
import type { TokenIdentity, TokenVerifier } from "../tokens/verifier.ts";
import type { ClusterTunnels } from "../tunnels/cluster-tunnels.ts";

/** The rules by which one side of a cluster authenticates its peers: agents, or callers. */
export interface PeerRules {
  /** The cluster of the virtual host that the peer came to. */
  readonly tunnels: Pick<ClusterTunnels, "name" | "verifying">;
  /** Empty: every certificate of the CA, except those with Konnectivity's names for the other role. */
  readonly identities: readonly IdentityPattern[];
  /** The flag or key that lists them; refusals name it. */
  readonly rule: string;
  /** The CA (PEM) that certificates are verified by now. */
  readonly ca: string | undefined;
  /** This CA together with its CRLs; the TLS handshake verifies by the CA alone. */
  readonly trust: Pick<ClientTrust, "crlFault">;
  /** Present: tokens are accepted. */
  readonly verifier: TokenVerifier | undefined;
  /** `proved`: a client from this address has proved a credential. */
  readonly handshakes?: { proved(address: string): void; budgetFor(address: string): HandshakeBudget };
}

/** The peer's end of a TLS connection: `IncomingConnection` outside, `InnerTls` inside. */
export interface TlsPeer {
  readonly socket: Socket;
  /** The CA (PEM) by which TLS verifies its certificate. */
  readonly verifiedBy: string | undefined;
}

/** Bounds of the verification of a token, which may take seconds. */
export interface TokenBounds {
  /** The address that the peer connects from, which an inner TLS does not know. */
  readonly address: string;
  readonly deadlineMs: number;
  /** Peers of one cluster whose tokens are verified at once (`--max-token-verifications`). */
  readonly most: number;
}

const ROLES = {
  agent: {
    plural: "agents",
    /** How the peer sends a token: a part of the error for a peer without a credential. */
    tokenHint: "--service-account-token-path",
    /**
     * Outcomes of a certificate of an old CA, and of an identity that is not permitted. An agent gets `forbidden` for
     * that: after `unauthenticated` it could try inner TLS with the same certificate. A caller may send another
     * credential (407).
     */
    caChanged: "draining",
    notPermitted: "forbidden",
    isOfOtherSide: "is a caller's, not an agent's",
  },
  caller: {
    plural: "callers",
    tokenHint: "Proxy-Authorization: Bearer",
    caChanged: "unauthenticated",
    notPermitted: "unauthenticated",
    isOfOtherSide: "is an agent's, not a caller's",
  },
} as const;

type RoleName = keyof typeof ROLES;

/**
 * Authenticates a peer by its certificate: TLS has verified it (`verifyPeer`), the CA is still the present one, it is
 * on no CRL, and its identity is permitted. Throws `unauthenticated`, or an outcome of its role.
 */
export function authenticateByCertificate(
  { socket, verifiedBy }: TlsPeer,
  role: RoleName,
  rules: PeerRules,
): PeerIdentity {
  const { tokenHint, caChanged } = ROLES[role];
  const { identity, refusal, fault: credentialFault } = verifyPeer(socket, verifiedBy);
  if (identity === undefined) {
    const or = rules.verifier === undefined ? "" : `, and no token (${tokenHint})`;
    throw new CulvertError("unauthenticated", `${refusal}${or}`, { fault: credentialFault });
  }
  // Otherwise a peer that came with the old CA could stay forever.
  if (verifiedBy !== undefined && verifiedBy !== rules.ca) {
    throw new CulvertError(caChanged, "the CA of this cluster has changed during the handshake: connect again");
  }
  const fault = rules.trust.crlFault(identity.chain);
  if (fault !== undefined) throw new CulvertError("unauthenticated", `the client certificate ${fault}`);
  const refused = identityRefusal(identity, role, rules);
  if (refused !== undefined) throw refused;
  return identity;
}

/** Why the identity in a certificate is not permitted; `undefined`: it is. */
export function identityRefusal(
  peer: PeerIdentity,
  role: RoleName,
  { identities, rule }: Pick<PeerRules, "identities" | "rule">,
): CulvertError | undefined {
  if (permits(identities, role, peer)) return undefined;
  const { notPermitted, isOfOtherSide } = ROLES[role];
  const why = identities.length > 0 ? `is not among ${rule}` : isOfOtherSide;
  // An agent id belongs to the whole subject; a caller is shown by the name that its log lines have.
  const name = role === "agent" ? printable(subjectOf(peer), 120) : shortSubject(peer);
  return new CulvertError(notPermitted, `the client certificate ${name} ${why}`);
}

interface VerifiedToken {
  readonly identity: TokenIdentity;
  /** The verifier that has accepted the token; the rules may have another one now. */
  readonly verifier: TokenVerifier;
}

/**
 * Authenticates a peer by its token. Rejects with `unauthenticated`, or with `overloaded` if the token cannot be
 * verified now or within the deadline.
 */
export async function authenticateByToken(
  { token, cluster }: PresentedToken,
  { socket }: TlsPeer,
  role: RoleName,
  rules: PeerRules,
  { address, deadlineMs, most }: TokenBounds,
): Promise<VerifiedToken> {
  const { name, verifying } = rules.tunnels;
  requireOwnName(cluster, name);
  const { plural } = ROLES[role];
  const network = networkOf(address);
  const sentence = `too many tokens of ${plural} of cluster "${name}" are being verified (--max-token-verifications): the oldest was dropped`;
  return await verifying[plural].run({ socket, network }, { most, sentence }, async (dropped) => {
    const { verifier } = rules;
    if (verifier === undefined) throw new CulvertError("unauthenticated", TOKENS_NOT_ACCEPTED);
    const signal = AbortSignal.any([AbortSignal.timeout(deadlineMs), dropped]);
    const result = await orOverloaded(verifier.verify(token, { signal, network }), signal);
    if ("refused" in result) throw new CulvertError("unauthenticated", result.refused, { fault: result.fault });
    if ("unavailable" in result) {
      const { unavailable, retryAfterMs, detail } = result;
      throw new CulvertError("overloaded", unavailable, { retryAfterMs, cause: new Error(detail) });
    }
    rules.handshakes?.proved(address);
    return { identity: result.ok, verifier };
  });
}

export const TOKENS_NOT_ACCEPTED = "tokens are not taken here any more";

/** A cluster's name beside a token (`Basic CLUSTER:TOKEN`) must be the cluster's own. */
function requireOwnName(presented: string | undefined, name: string): void {
  if (presented === undefined || presented === name) return;
  throw new CulvertError(
    "unauthenticated",
    `the token came with the name of cluster "${printable(presented, 64)}", which is not served here`,
  );
}

/** An abort by the signal means that the verifier took too long. */
async function orOverloaded<T>(verification: Promise<T>, signal: AbortSignal): Promise<T> {
  try {
    return await verification;
  } catch (error) {
    if (!signal.aborted) throw error;
    const sentence = "the token could not be verified in time: try again";
    throw new CulvertError("overloaded", sentence, { retryAfterMs: 1_000 });
  }
}
