import type { IncomingHttpHeaders } from "node:http";
import type { Socket } from "node:net";
import { type PresentedToken, presentedToken } from "../../shared/net/bearer.ts";
import { type IdentityPattern, judgePeer, permits, subjectOf } from "../../shared/net/identity.ts";
import { judgedByCa } from "../../shared/net/tls.ts";
import { CulvertError, printable } from "../../shared/outcomes.ts";
import type { TokenVerifier } from "../tokens/verifier.ts";
import type { Credential } from "./credential.ts";
import type { ClusterTunnels } from "./registry.ts";

/** Whom the agents' port of a cluster lets in. */
export interface AgentRules {
  /** Of the cluster that it leads to. */
  readonly tunnels: Pick<ClusterTunnels, "name" | "judged">;
  /** Empty: everybody but Konnectivity's callers. */
  readonly identities: readonly IdentityPattern[];
  /** Where they are listed. */
  readonly rule: string;
  /** By which certificates are judged now. */
  readonly ca: string | undefined;
  /** Present: tokens are taken. */
  readonly verifier: TokenVerifier | undefined;
}

/** How long others may take over an agent's token, and how many agents of one cluster. */
export interface Patience {
  readonly deadlineMs: number;
  readonly maxJudged: number;
  /** From here on the agent waits for us. */
  onJudging(): void;
}

/** When an agent should come again for which there is no judge now, ms. */
const CROWDED_RETRY_MS = 1_000;

/**
 * Who is this agent? By its token where tokens are taken and it brings one, else by its certificate. Rejects with
 * `unauthenticated` or `forbidden` and a sentence for whoever runs it; with `overloaded` if nobody can judge its token now,
 * or within the deadline.
 */
export async function identify(
  socket: Socket,
  headers: IncomingHttpHeaders,
  rules: AgentRules,
  patience: Patience,
): Promise<Credential> {
  const presented = rules.verifier && presentedToken(headers.authorization);
  if (presented === undefined) return byCertificate(socket, rules);
  mustName(presented, rules.tunnels.name);
  return await judgedApart(socket, rules.tunnels, patience, (signal) => byToken(presented.token, rules, signal));
}

/** The name beside a token (`Basic CLUSTER:TOKEN`) may only agree with the cluster (design: "Trust"). */
export function mustName({ cluster }: PresentedToken, served: string): void {
  if (cluster === undefined || cluster === served) return;
  throw new CulvertError(
    "unauthenticated",
    `the token came with the name of cluster "${printable(cluster, 64)}", which is not served here`,
  );
}

/** Judging may take seconds: one cluster's agents wait in a room of their own, and those that have gone leave it. */
async function judgedApart<T>(
  socket: Socket,
  { name, judged }: AgentRules["tunnels"],
  { deadlineMs, maxJudged, onJudging }: Patience,
  judge: (signal: AbortSignal) => Promise<T>,
): Promise<T> {
  if (judged.size >= maxJudged) {
    throw new CulvertError(
      "overloaded",
      `the tokens of ${judged.size} agents of cluster "${name}" are being judged (--max-judged-agents)`,
      { retryAfterMs: CROWDED_RETRY_MS },
    );
  }
  onJudging();
  judged.add(socket);
  const leave = () => judged.delete(socket);
  socket.once("close", leave);
  try {
    return await judge(AbortSignal.timeout(deadlineMs));
  } finally {
    socket.off("close", leave);
    leave();
  }
}

function byCertificate(socket: Socket, rules: AgentRules): Credential {
  const { identities, rule, verifier } = rules;
  const { identity: peer, refusal } = judgePeer(socket);
  if (peer === undefined) {
    const or = verifier === undefined ? "" : ", and no token (--service-account-token-path)";
    throw new CulvertError("unauthenticated", `${refusal}${or}`);
  }
  // A handshake of before is no proof: who came with the old CA would stay for ever.
  const by = judgedByCa(socket);
  if (by !== undefined && by !== rules.ca) {
    throw new CulvertError("draining", "the CA of this cluster has changed during the handshake: connect again");
  }
  const identity = subjectOf(peer);
  if (permits(identities, "agent", peer)) return { identity, peer, ca: by, token: undefined };
  const why = identities.length > 0 ? `is not among ${rule}` : "is a caller's, not an agent's";
  throw new CulvertError("forbidden", `the client certificate ${printable(identity, 120)} ${why}`);
}

async function byToken(text: string, rules: AgentRules, signal: AbortSignal): Promise<Credential> {
  // Asked for anew each time: the rules may be others when the token is judged again.
  const verifier: Pick<TokenVerifier, "verify"> = {
    verify: (token, aborted) => {
      if (rules.verifier === undefined) return Promise.resolve({ refused: "tokens are not taken here any more" });
      return rules.verifier.verify(token, aborted);
    },
  };
  const verdict = await inTime(verifier.verify(text, signal), signal);
  // The prefix keeps a token's subject apart from any name in a certificate.
  if ("ok" in verdict) {
    const token = { text, identity: verdict.ok, verifier };
    return { identity: `SUB=${verdict.ok.subject}`, peer: undefined, ca: undefined, token };
  }
  if ("refused" in verdict) throw new CulvertError("unauthenticated", verdict.refused);
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
