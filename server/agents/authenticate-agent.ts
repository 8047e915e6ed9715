import { X509Certificate } from "node:crypto";
import type { IncomingHttpHeaders } from "node:http";
import type { Socket } from "node:net";
import type { Duplex } from "node:stream";
import { presentedToken } from "../../shared/http/bearer.ts";
import { IncomingConnection } from "../../shared/listen/incoming-connection.ts";
import { CulvertError } from "../../shared/outcomes.ts";
import type { ClientTrust } from "../../shared/tls/client-trust.ts";
import { identityOfChain, type PeerIdentity, subjectOf } from "../../shared/tls/identity.ts";
import type { TlsMaterial } from "../../shared/tls/tls-material.ts";
import type { InnerTlsRule } from "../clusters/access-rules.ts";
import type { ClusterSide } from "../clusters/cluster.ts";
import {
  authenticateByCertificate,
  authenticateByToken,
  identityRefusal,
  type PeerRules,
  type TlsPeer,
  TOKENS_NOT_ACCEPTED,
  type TokenBounds,
} from "../listeners/authenticate-peer.ts";
import type { TokenVerifier } from "../tokens/verifier.ts";
import type { ClusterTunnels } from "../tunnels/cluster-tunnels.ts";
import type { CarriedFacts, Credential } from "../tunnels/links.ts";

/** A cluster's virtual host for agents. */
export interface AgentHost extends PeerRules {
  readonly tunnels: ClusterTunnels;
  readonly tls: TlsMaterial;
  /** By it a certificate is verified whose handshake another server has done. */
  readonly trust: Pick<ClientTrust, "status" | "crlFault">;
  /** Whether agents behind a middlebox that ends TLS may prove themselves by inner TLS. */
  readonly innerTls: InnerTlsRule;
  /** Whether konnectivity-agents may connect beside culvert's own. */
  readonly takesKonnectivity: boolean;
  /** The names of this host; without any, every name leads here. */
  readonly side: Pick<ClusterSide, "sni">;
  /** Why no peer from this address is accepted, whatever its credential. */
  objection(address: string): CulvertError | undefined;
}

/** The virtual host of a connection that has come to one. */
export function hostOf({ host }: IncomingConnection<AgentHost>): AgentHost {
  if (host === undefined) throw new CulvertError("internal", "a connection without a virtual host");
  return host;
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
    onVerifying?(): void;
  },
): Promise<Credential> {
  const presented = rules.verifier && presentedToken(headers.authorization);
  if (presented === undefined) {
    const isCarried = peer instanceof CarriedConnection;
    const certificate = isCarried ? verifyCarried(peer, rules) : authenticateByCertificate(peer, "agent", rules);
    const ca = isCarried ? rules.ca : peer.verifiedBy;
    return { identity: subjectOf(certificate), peer: certificate, ca, token: undefined };
  }
  bounds.onVerifying?.();
  const { identity } = await authenticateByToken(presented, peer, "agent", rules, bounds);
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

/**
 * The connection of an agent that another server has carried here, as a stream of its link. It may only resume a link.
 */
export class CarriedConnection extends IncomingConnection<AgentHost> {
  /** The server that carries it. */
  readonly via: string;
  readonly chain: CarriedFacts["chain"];

  constructor(stream: Duplex, host: AgentHost, { source, chain }: CarriedFacts, via: string) {
    super(stream as Socket); // what reads and writes it uses no more of a socket than a Duplex has
    this.client = source;
    this.host = host;
    this.via = via;
    this.chain = chain;
    this.handedOn(this.raw);
  }

  override get remote(): string {
    return `${super.remote} (carried by server "${this.via}")`;
  }
}

/**
 * Verifies the certificate of an agent whose TLS handshake another server has done: by this server's CA, CRLs and
 * identities, and its dates. Throws as `authenticateByCertificate` does.
 */
function verifyCarried(
  { chain }: CarriedConnection,
  rules: Pick<AgentHost, "trust" | "identities" | "rule">,
): PeerIdentity {
  if (chain.length === 0) {
    const sentence = "the agent has shown no client certificate to the server that carries its connection";
    throw new CulvertError("unauthenticated", sentence, { fault: "certificate_missing" });
  }
  const identity = readIdentity(chain);
  const now = new Date();
  if (chain.some((der) => !isInTime(new X509Certificate(der), now))) {
    throw refusal("has expired, or is not valid yet, by the clock of the server that has the link");
  }
  // Without a time: an expired CRL is a fault of this server, and `crlFault` says so.
  const { trust } = rules;
  const status = trust.status(chain);
  if (status === "untrusted") throw refusal("is not signed by a CA that is accepted here");
  const fault = trust.crlFault(identity.chain);
  if (fault !== undefined) throw refusal(fault);
  const refused = identityRefusal(identity, "agent", rules);
  if (refused !== undefined) throw refused;
  return identity;
}

function readIdentity(chain: CarriedFacts["chain"]): PeerIdentity {
  try {
    return identityOfChain(chain);
  } catch (error) {
    throw refusal((error as Error).message);
  }
}

function isInTime({ validFrom, validTo }: X509Certificate, now: Date): boolean {
  return new Date(validFrom) <= now && now <= new Date(validTo);
}

function refusal(why: string): CulvertError {
  return new CulvertError("unauthenticated", `the client certificate ${why}`);
}
