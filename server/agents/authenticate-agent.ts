import type { IncomingHttpHeaders } from "node:http";
import { presentedToken } from "../../shared/http/bearer.ts";
import type { CulvertError } from "../../shared/outcomes.ts";
import type { ClientTrust } from "../../shared/tls/client-trust.ts";
import { subjectOf } from "../../shared/tls/identity.ts";
import type { TlsMaterial } from "../../shared/tls/tls-material.ts";
import type { ClusterSide, InnerTlsRule } from "../clusters/cluster.ts";
import {
  type PeerRules,
  type TlsPeer,
  TOKENS_NOT_ACCEPTED,
  type TokenBounds,
  verifyCertificate,
  verifyToken,
} from "../listeners/authenticate-peer.ts";
import type { TokenVerifier } from "../tokens/verifier.ts";
import type { ClusterTunnels } from "../tunnels/cluster-tunnels.ts";
import type { Credential } from "../tunnels/links.ts";
import { CarriedConnection, verifyCarried } from "./carried-connection.ts";

/** A cluster's virtual host for agents. */
export interface AgentHost extends PeerRules {
  readonly tunnels: ClusterTunnels;
  readonly tls: TlsMaterial;
  /** The CA and its CRLs, by which a certificate is verified whose handshake another server has done. */
  readonly trust: Pick<ClientTrust, "status">;
  /** Whether agents behind a middlebox that ends TLS may prove themselves by inner TLS. */
  readonly innerTls: InnerTlsRule;
  /** Its names; without any, every name leads here. */
  readonly side: Pick<ClusterSide, "sni">;
  /** Why no peer from this address is accepted, whatever its credential. */
  objection(address: string): CulvertError | undefined;
}

/**
 * Authenticates an agent: by its token if tokens are accepted and it sends one, otherwise by its certificate. Rejects
 * with `unauthenticated`, `forbidden`, `draining`, or `overloaded` if a token cannot be verified now.
 */
export async function authenticateAgent(
  peer: TlsPeer,
  headers: IncomingHttpHeaders,
  rules: PeerRules & Pick<AgentHost, "trust">,
  bounds: TokenBounds & {
    /** The verification of a token begins, for which the agent has to wait. */
    onVerifying(): void;
  },
): Promise<Credential> {
  const presented = rules.verifier && presentedToken(headers.authorization);
  if (presented === undefined) {
    const isCarried = peer instanceof CarriedConnection;
    const certificate = isCarried ? verifyCarried(peer, rules) : verifyCertificate(peer, "agent", rules);
    const ca = isCarried ? rules.ca : peer.verifiedBy;
    return { identity: subjectOf(certificate), peer: certificate, ca, token: undefined };
  }
  bounds.onVerifying();
  const { identity } = await verifyToken(presented, peer, "agent", rules, bounds);
  const token = { text: presented.token, identity, verifier: currentVerifier(rules) };
  // The prefix keeps the subject of a token apart from any name in a certificate.
  return { identity: `SUB=${identity.subject}`, peer: undefined, ca: undefined, token };
}

/** Verifies by the rules of the moment: they may have changed when the token of an open tunnel is verified again. */
function currentVerifier(rules: PeerRules): Pick<TokenVerifier, "verify"> {
  return {
    verify: (token, asker) => rules.verifier?.verify(token, asker) ?? Promise.resolve({ refused: TOKENS_NOT_ACCEPTED }),
  };
}
