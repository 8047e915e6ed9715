import { type AgentIdentifiers, canonicalIdentifiers } from "../../shared/address/agent-identifiers.ts";
import type { Hello } from "../../shared/link/control.ts";
import type { InnerWelcome } from "../../shared/link/inner-pipe.ts";
import type { LinkKey } from "../../shared/link/proof.ts";
import { printable } from "../../shared/outcomes.ts";
import { permits } from "../../shared/tls/identity.ts";
import { CloseCode, HANDSHAKE_VERSION, isAlreadyConnected, LinkRefused } from "../../shared/wire/handshake.ts";
import type { PeerRules } from "../listeners/authenticate-peer.ts";
import type { ServerOptions } from "../options/options.ts";
import type { ClusterTunnels } from "../tunnels/cluster-tunnels.ts";
import type { Credential, Links, ResumableLink } from "../tunnels/links.ts";
import { firstWindows } from "../tunnels/tunnel.ts";
import type { AdmittedAgent } from "./run-tunnel.ts";

// The checks of a hello message, outside or inside an inner TLS, and the answer to it.

/** The cluster in a hello must be the one that the credential belongs to. */
export function requireSameCluster(hello: Pick<Hello, "cluster">, { name }: Pick<ClusterTunnels, "name">): void {
  if (hello.cluster === undefined || hello.cluster === name) return;
  throw new LinkRefused({
    closeCode: CloseCode.forbidden,
    reason: `this agent's credential belongs to cluster "${name}", not to "${printable(hello.cluster, 40)}" (--cluster)`,
  });
}

/**
 * A hello may come long after the credential was verified, and trust may have changed meanwhile. Only tunnels that are
 * open then are verified again (`ClusterRuntime.reverifyAgents`). From here to `AgentPlace.hold` there is no wait
 * for anything outside, so that no change falls in between.
 */
export function requireStillTrusted(
  { peer, ca }: Credential,
  rules: Pick<PeerRules, "ca" | "identities" | "crlFault">,
): void {
  if (peer === undefined) return; // a token is verified again regularly
  const isOfCa = ca === undefined || ca === rules.ca;
  if (isOfCa && rules.crlFault(peer) === undefined && permits(rules.identities, "agent", peer)) return;
  const reason = "the trust of this cluster has changed during the handshake: connect again";
  throw new LinkRefused({ closeCode: CloseCode.draining, reason });
}

export interface ReserveDeps {
  readonly cluster: ClusterTunnels;
  readonly links: Links;
  /** True from SIGTERM on. */
  draining(): boolean;
}

/**
 * The identifiers of a hello in canonical forms. Throws `LinkRefused` if there is one that this agent may not claim
 * (`agents.claims` of a document).
 */
export function claimedIdentifiers(
  { identifiers: given = {} }: Pick<Hello, "identifiers">,
  { identity, peer }: Pick<Credential, "identity" | "peer">,
  { name, rules }: Pick<ClusterTunnels, "name" | "rules">,
): AgentIdentifiers {
  let identifiers: AgentIdentifiers;
  try {
    identifiers = canonicalIdentifiers(given);
  } catch (error) {
    const reason = `bad hello message: identifiers: ${(error as Error).message}`;
    throw new LinkRefused({ closeCode: CloseCode.badHello, reason });
  }
  const foreign = rules.claims?.objection(identifiers, { identity, peer });
  if (foreign === undefined) return identifiers;
  throw new LinkRefused({
    closeCode: CloseCode.forbidden,
    reason: `this agent may not claim ${foreign} in cluster "${name}" (agents.claims of its document)`,
  });
}

/**
 * Reserves a place for a new tunnel, or throws `LinkRefused`. `innerKey`: the key of the inner TLS that it begins with.
 */
export function reserve(
  hello: Pick<Hello, "agentId" | "instance" | "probe" | "identifiers">,
  credential: Pick<Credential, "identity" | "peer">,
  { cluster, links, draining }: ReserveDeps,
  innerKey?: LinkKey,
): AdmittedAgent {
  if (draining()) throw new LinkRefused({ closeCode: CloseCode.draining, reason: "this server is shutting down" });
  const { agentId, instance, probe } = hello;
  const { identity } = credential;
  const candidate = { agentId, instance, identity };
  cluster.pace.begin(candidate);
  const identifiers = claimedIdentifiers(hello, credential, cluster);
  try {
    const place = probe === true ? cluster.places.reserveProbe() : cluster.places.reserve(candidate);
    return { place, entry: links.issue(cluster.name, candidate, innerKey), identifiers };
  } catch (error) {
    if (isAlreadyConnected(error)) cluster.pace.didNotBegin(candidate);
    throw error;
  }
}

/** Frees the place of a tunnel that has ended or has never begun. */
export function release({ place, entry }: AdmittedAgent, links: Links): void {
  place.release();
  if (entry.link === undefined) links.forget(entry.id);
}

/** The fields of every welcome. */
export function welcomeFields(
  { id: link }: Pick<ResumableLink, "id">,
  graceMs: number,
  options: Pick<ServerOptions, "serverId" | "keepaliveMs" | "initialWindow">,
  servers: number | undefined,
): InnerWelcome {
  const { serverId, keepaliveMs } = options;
  const windows = firstWindows(options);
  const known = servers === undefined ? {} : { servers };
  return { type: "welcome", version: HANDSHAKE_VERSION, serverId, ...known, link, keepaliveMs, graceMs, ...windows };
}

/** An agent that only measures never resumes its link. */
export function graceOf({ probe }: Pick<Hello, "probe">, { linkGraceMs }: Pick<ServerOptions, "linkGraceMs">): number {
  return probe === true ? 0 : linkGraceMs;
}
