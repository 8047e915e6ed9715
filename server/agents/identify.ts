import type { IncomingHttpHeaders } from "node:http";
import type { Socket } from "node:net";
import { networkOf } from "../../shared/address/network.ts";
import { type PresentedToken, presentedToken } from "../../shared/http/bearer.ts";
import { CulvertError, printable } from "../../shared/outcomes.ts";
import { type IdentityPattern, type PeerIdentity, permits, subjectOf, verifyPeer } from "../../shared/tls/identity.ts";
import type { TokenVerifier, VerifyContext } from "../tokens/verifier.ts";
import type { Credential } from "../tunnels/credential.ts";
import type { ClusterTunnels } from "../tunnels/registry.ts";

/** Whom the agents' port of a cluster lets in. */
export interface AgentRules {
  /** Of the cluster that it leads to. */
  readonly tunnels: Pick<ClusterTunnels, "name" | "verifying">;
  /** Empty: everybody but Konnectivity's callers. */
  readonly identities: readonly IdentityPattern[];
  /** Where they are listed. */
  readonly rule: string;
  /** By which certificates are judged now. */
  readonly ca: string | undefined;
  /** Present: tokens are taken. */
  readonly verifier: TokenVerifier | undefined;
  /** What the CRLs say against a certificate of that CA; continues "the client certificate". */
  crlFault(peer: PeerIdentity): string | undefined;
  /** A client from this address has proved a credential. */
  proved?(address: string): void;
}

/** The agent's end of a TLS connection: `IncomingConnection` outside, `InnerTls` inside. */
export interface TlsPeer {
  readonly socket: Socket;
  /** The CA (PEM) by which TLS verifies its certificate. */
  readonly verifiedBy: string | undefined;
}

/** How long others may take over an agent's token, and how many agents of one cluster. */
export interface Patience {
  /** Where the agent comes from, which an inner TLS does not know. */
  readonly address: string;
  readonly deadlineMs: number;
  readonly maxJudged: number;
  /** From here on the agent waits for us. */
  onJudging(): void;
}

/**
 * Who is this agent? By its token where tokens are taken and it brings one, else by its certificate. Rejects with
 * `unauthenticated` or `forbidden` and a sentence for whoever runs it; with `overloaded` if nobody can judge its token now,
 * or within the deadline.
 */
export async function identify(
  peer: TlsPeer,
  headers: IncomingHttpHeaders,
  rules: AgentRules,
  patience: Patience,
): Promise<Credential> {
  const presented = rules.verifier && presentedToken(headers.authorization);
  if (presented === undefined) return byCertificate(peer, rules);
  mustName(presented, rules.tunnels.name);
  const { name, verifying } = rules.tunnels;
  const { address, deadlineMs, maxJudged: most, onJudging } = patience;
  const network = networkOf(address);
  const sentence = `too many tokens of agents of cluster "${name}" are being verified (--max-judged-agents): the oldest was dropped`;
  onJudging();
  const credential = await verifying.agents.run(
    { socket: peer.socket, network },
    { most, deadlineMs, sentence },
    (signal) => byToken(presented.token, rules, { signal, network }),
  );
  rules.proved?.(address);
  return credential;
}

/** The name beside a token (`Basic CLUSTER:TOKEN`) may only agree with the cluster (design: "Trust"). */
export function mustName({ cluster }: PresentedToken, served: string): void {
  if (cluster === undefined || cluster === served) return;
  throw new CulvertError(
    "unauthenticated",
    `the token came with the name of cluster "${printable(cluster, 64)}", which is not served here`,
  );
}

function byCertificate({ socket, verifiedBy: by }: TlsPeer, rules: AgentRules): Credential {
  const { identities, rule, verifier } = rules;
  const { identity: peer, refusal, fault: credentialFault } = verifyPeer(socket, by);
  if (peer === undefined) {
    const or = verifier === undefined ? "" : ", and no token (--service-account-token-path)";
    throw new CulvertError("unauthenticated", `${refusal}${or}`, { fault: credentialFault });
  }
  // A handshake of before is no proof: who came with the old CA would stay for ever.
  if (by !== undefined && by !== rules.ca) {
    throw new CulvertError("draining", "the CA of this cluster has changed during the handshake: connect again");
  }
  const fault = rules.crlFault(peer);
  if (fault !== undefined) throw new CulvertError("unauthenticated", `the client certificate ${fault}`);
  const identity = subjectOf(peer);
  if (permits(identities, "agent", peer)) return { identity, peer, ca: by, token: undefined };
  const why = identities.length > 0 ? `is not among ${rule}` : "is a caller's, not an agent's";
  throw new CulvertError("forbidden", `the client certificate ${printable(identity, 120)} ${why}`);
}

async function byToken(text: string, rules: AgentRules, asker: VerifyContext): Promise<Credential> {
  // Asked for anew each time: the rules may be others when the token is judged again.
  const verifier: Pick<TokenVerifier, "verify"> = {
    verify: (token, by) => {
      if (rules.verifier === undefined) return Promise.resolve({ refused: "tokens are not taken here any more" });
      return rules.verifier.verify(token, by);
    },
  };
  const verdict = await inTime(verifier.verify(text, asker), asker.signal);
  // The prefix keeps a token's subject apart from any name in a certificate.
  if ("ok" in verdict) {
    const token = { text, identity: verdict.ok, verifier };
    return { identity: `SUB=${verdict.ok.subject}`, peer: undefined, ca: undefined, token };
  }
  if ("refused" in verdict) throw new CulvertError("unauthenticated", verdict.refused, { fault: verdict.fault });
  throw new CulvertError("overloaded", verdict.unavailable, {
    retryAfterMs: verdict.retryAfterMs,
    cause: new Error(verdict.detail),
  });
}

/** Rejects with `overloaded` when it was not the token that took too long, but its judge. */
export async function inTime<T>(judged: Promise<T>, signal: AbortSignal): Promise<T> {
  try {
    return await judged;
  } catch (error) {
    if (!signal.aborted) throw error;
    throw new CulvertError("overloaded", "nobody has judged the token in time: try again", { retryAfterMs: 1_000 });
  }
}
