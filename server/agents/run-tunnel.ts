import { type AgentIdentifiers, canonicalIdentifiers, isEmpty } from "../../shared/address/agent-identifiers.ts";
import type { Hello } from "../../shared/link/control.ts";
import type { InnerWelcome } from "../../shared/link/inner-pipe.ts";
import type { Link, LinkOptions } from "../../shared/link/link.ts";
import { type CarrierLost, LinkLost, PeerViolation, type ResumeReport } from "../../shared/link/link-events.ts";
import { silenceMs } from "../../shared/link/liveness.ts";
import type { LinkKey } from "../../shared/link/proof.ts";
import { printable } from "../../shared/outcomes.ts";
import { permits } from "../../shared/tls/identity.ts";
import { agreedFeatures, FEATURES, HANDSHAKE_VERSION, isAlreadyConnected } from "../../shared/wire/handshake.ts";
import { isViolation } from "../../shared/yamux/errors.ts";
import type { Transport } from "../../shared/yamux/transport.ts";
import { DESTINATIONS } from "../destinations/serve-destination.ts";
import type { PeerRules } from "../listeners/authenticate-peer.ts";
import { type AgentPlace, refused } from "../tunnels/agent-places.ts";
import { AgentStreams } from "../tunnels/agent-streams.ts";
import type { ClusterTunnels } from "../tunnels/cluster-tunnels.ts";
import type { Credential, Links, ResumableLink } from "../tunnels/links.ts";
import { firstWindows, sessionOptions, YamuxTunnel } from "../tunnels/yamux-tunnel.ts";
import { recordTunnel } from "./agent-record.ts";
import type { AgentsContext } from "./context.ts";
import { CertificateWatch, TokenWatch } from "./credential-watch.ts";

/** The kinds of streams that agents may open. */
const AGENT_STREAM_KINDS = [DESTINATIONS];

// From the hello of an agent, outside or inside an inner TLS, to the end of its tunnel: the checks of the hello, the
// place and the link, the tunnel while it runs, and its log.

/**
 * The parts of a new tunnel: its agent's place, the entry of its link, and the identifiers that its agent may claim.
 */
export interface ReservedTunnel {
  readonly cluster: ClusterTunnels;
  readonly place: AgentPlace;
  readonly entry: ResumableLink;
  readonly identifiers: AgentIdentifiers;
  /** The grace of its link; an agent that only measures never resumes it. */
  readonly graceMs: number;
}

/**
 * The cluster in a hello must be the one that the credential belongs to. And a hello may come long after the credential
 * was verified: trust may have changed meanwhile, and only tunnels that are open then are verified again
 * (`ClusterRuntime.reverifyAgents`). From here to `AgentPlace.join` the code waits for no I/O and no timer, so that no
 * change falls in between.
 */
export function requireAcceptedHello(
  hello: Pick<Hello, "cluster">,
  { peer, ca }: Credential,
  { name }: Pick<ClusterTunnels, "name">,
  rules: Pick<PeerRules, "ca" | "identities" | "trust">,
): void {
  if (hello.cluster !== undefined && hello.cluster !== name) {
    throw refused(
      "forbidden",
      `this agent's credential belongs to cluster "${name}", not to "${printable(hello.cluster, 40)}" (--cluster)`,
    );
  }
  if (peer === undefined) return; // a token is verified again regularly
  const isOfCa = ca === undefined || ca === rules.ca;
  if (isOfCa && rules.trust.crlFault(peer.chain) === undefined && permits(rules.identities, "agent", peer)) return;
  throw refused("draining", "the trust of this cluster has changed during the handshake: connect again");
}

/**
 * The identifiers of a hello in canonical forms. Throws `LinkRefused` if there is one that this agent may not claim
 * (`agents.claims` of a document).
 */
export function claimedIdentifiers(
  { identifiers: given = {} }: Pick<Hello, "identifiers">,
  { identity, peer }: Credential,
  { name, rules }: Pick<ClusterTunnels, "name" | "rules">,
): AgentIdentifiers {
  let identifiers: AgentIdentifiers;
  try {
    identifiers = canonicalIdentifiers(given);
  } catch (error) {
    throw refused("badHello", `bad hello message: identifiers: ${(error as Error).message}`);
  }
  const foreign = rules.claims?.objection(identifiers, { identity, peer });
  if (foreign === undefined) return identifiers;
  throw refused(
    "forbidden",
    `this agent may not claim ${foreign} in cluster "${name}" (agents.claims of its document)`,
  );
}

/**
 * Reserves a place for a new tunnel, or throws `LinkRefused`. `innerKey`: the key of the inner TLS that it begins with.
 */
export function reserve(
  hello: Hello,
  credential: Credential,
  cluster: ClusterTunnels,
  { options, links, draining }: AgentsContext,
  innerKey?: LinkKey,
): ReservedTunnel {
  if (draining()) throw refused("draining", "this server is shutting down");
  const { agentId, instance, probe } = hello;
  const { identity } = credential;
  const candidate = { agentId, instance, identity };
  cluster.pace.begin(candidate);
  const identifiers = claimedIdentifiers(hello, credential, cluster);
  try {
    const place = probe === true ? cluster.places.reserveProbe() : cluster.places.reserve(candidate);
    const graceMs = probe === true ? 0 : options.linkGraceMs;
    return { cluster, place, entry: links.issue(cluster.name, candidate, innerKey), identifiers, graceMs };
  } catch (error) {
    if (isAlreadyConnected(error)) cluster.pace.didNotBegin(candidate);
    throw error;
  }
}

/** Frees the place of a tunnel that has ended or has never begun. */
export function release({ place, entry }: ReservedTunnel, links: Links): void {
  place.leave();
  if (entry.link === undefined) links.forget(entry.id);
}

/** The fields of every welcome. */
export function welcomeFields({ entry, graceMs }: ReservedTunnel, { options, servers }: AgentsContext): InnerWelcome {
  const { serverId, keepaliveMs } = options;
  const count = servers.value === undefined ? {} : { servers: servers.value };
  const ofLink = { link: entry.id, keepaliveMs, graceMs, ...firstWindows(options) };
  return { type: "welcome", version: HANDSHAKE_VERSION, features: FEATURES, serverId, ...count, ...ofLink };
}

/** The options of the server's end of a link. */
export function linkOptions(graceMs: number, cluster: ClusterTunnels, { options }: AgentsContext): LinkOptions {
  const { replayBuffer: replayBytes, keepaliveMs } = options;
  return { graceMs, replayBytes, pool: cluster.memory.links, silenceMs: silenceMs(keepaliveMs) };
}

/**
 * Runs a tunnel from its first connection to its end, and logs what happens to it. `pipe`: the transport of its
 * session, which is the inner TLS over the link, or the link itself.
 */
export async function runTunnel(
  link: Link,
  pipe: Transport,
  { agentId, instance, software, probe = false, features, proxy: said }: Hello,
  { cluster, place, entry, identifiers }: ReservedTunnel,
  { identity, peer, token }: Credential,
  context: AgentsContext,
): Promise<void> {
  const { options, links, servers, metrics, throttledLog } = context;
  const proxy = said && printable(said, 300);
  const agent = { agentId, instance, identity, peer, software: printable(software), probe, proxy, identifiers };
  entry.link = link;
  entry.goodUntil = peer?.notAfter;
  const innerTls = pipe !== link;
  const line = { cluster: cluster.name, agent: agentId, tunnel: entry.id, remote: link.remote };
  const log = (level: "info" | "warn", fields: Readonly<Record<string, unknown>>, message: string) =>
    throttledLog.write(level, { ...line, ...fields }, message, { kind: `${identity}\n${agentId}`, lines: AGENT_LINES });

  function onSuspended({ lossCause, message, ageMs, idleMs }: CarrierLost): void {
    metrics.links.suspended(lossCause);
    const times = { ageMs: Math.round(ageMs), idleMs: Math.round(idleMs) };
    const { streamCount: streams } = tunnel;
    const reason = printable(message);
    log("warn", { remote: tunnel.remote, streams, cause: lossCause, reason, ...times }, "tunnel suspended");
    if (place.abandoned) tunnel.destroy(new Error("the agent was restarted"));
    cluster.onChanged();
  }

  function onResumed(resumption: ResumeReport): void {
    const { suspendedMs, replayedBytes } = resumption;
    metrics.links.resumed(resumption);
    cluster.tunnelAvailable();
    // A change may have been lost with the carrier before.
    if (servers.value !== undefined) link.sendControl({ type: "servers", count: servers.value });
    const times = { suspendedMs: Math.round(suspendedMs), replayedBytes };
    log("info", { remote: tunnel.remote, ...times }, suspendedMs === 0 ? "tunnel moved" : "tunnel resumed");
  }

  const tunnel = new YamuxTunnel(
    agent,
    link,
    { onSuspended, onResumed, onLeaving: () => cluster.onChanged(), onClosed: () => links.forget(entry.id) },
    sessionOptions(options, cluster.memory),
    pipe,
    new AgentStreams(agreedFeatures(probe ? [] : features), AGENT_STREAM_KINDS, { agent, cluster, link }, context),
  );
  place.join(tunnel);
  const endCount = servers.onChange((count) => link.sendControl({ type: "servers", count }));
  const recordEnd = recordTunnel(tunnel, cluster.name, context);
  const kind = {
    ...(innerTls && { innerTls }),
    ...(probe && { probe }),
    ...(!isEmpty(identifiers) && { identifiers }),
  };
  log("info", { identity, software: agent.software, ...kind }, "tunnel opened");
  const watch =
    token && new TokenWatch(token, tunnel, (reason, detail) => log("warn", { reason, detail }, "token not verified"));
  const ends = peer && new CertificateWatch(peer.notAfter, tunnel);
  entry.onCredential = ({ token: fresh, peer: renewed }) => {
    tunnel.onProof(renewed);
    entry.goodUntil = renewed?.notAfter;
    if (renewed) ends?.renewed(renewed.notAfter);
    if (fresh) watch?.renewed(fresh.text, fresh.identity);
  };

  const reason = await tunnel.closedWith;
  endCount();
  watch?.close();
  ends?.close();
  if (reason instanceof PeerViolation || isViolation(reason)) cluster.pace.offended(agent);
  if (reason instanceof LinkLost) metrics.links.graceOver(reason.graceMs);
  recordEnd(reason, tunnel.resetForMemory);
  if (reason === undefined) log("info", {}, "tunnel closed");
  else log("warn", { reason: printable(reason.message) }, "tunnel lost");
}

/** Lines about one agent in a minute: it may be lost and come back ten times. */
export const AGENT_LINES = 20;
