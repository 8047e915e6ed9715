import { type AgentIdentifiers, isEmpty } from "../../shared/address/agent-identifiers.ts";
import type { Hello } from "../../shared/link/control.ts";
import type { Link, LinkOptions } from "../../shared/link/link.ts";
import { type CarrierLost, LinkLost, PeerViolation, type ResumeReport } from "../../shared/link/link-events.ts";
import { silenceMs } from "../../shared/link/liveness.ts";
import { printable } from "../../shared/outcomes.ts";
import type { PeerIdentity } from "../../shared/tls/identity.ts";
import { isViolation } from "../../shared/yamux/errors.ts";
import type { Transport } from "../../shared/yamux/transport.ts";
import type { ServerMetrics } from "../metrics/server-metrics.ts";
import type { ServerOptions } from "../options/options.ts";
import type { ServerCount } from "../replicas/server-count.ts";
import { TokenWatch } from "../tokens/token-watch.ts";
import type { AgentPlace } from "../tunnels/agent-places.ts";
import type { ClusterTunnels } from "../tunnels/cluster-tunnels.ts";
import type { Credential, Links, ProvenToken, ResumableLink } from "../tunnels/links.ts";
import { sessionOptions, Tunnel } from "../tunnels/tunnel.ts";
import type { AgentLog } from "./agent-log.ts";
import { CertificateWatch } from "./certificate-watch.ts";

export interface RunTunnelDeps {
  readonly options: Pick<
    ServerOptions,
    "replayBuffer" | "keepaliveMs" | "initialWindow" | "maxWindow" | "sessionBudget" | "maxStreams"
  >;
  readonly cluster: ClusterTunnels;
  readonly links: Links;
  /** Sent to every agent, in its welcome and whenever it changes. */
  readonly servers: Pick<ServerCount, "value" | "onChange">;
  readonly metrics: ServerMetrics;
  readonly agentLog: AgentLog;
}

/** An agent that may begin a tunnel: its place, the entry of its link, and what it may say that it serves. */
export interface AdmittedAgent {
  readonly place: AgentPlace;
  readonly entry: ResumableLink;
  readonly identifiers: AgentIdentifiers;
}

interface TunnelTransport {
  readonly link: Link;
  /** The transport of the session: the inner TLS over the link, or the link itself. */
  readonly pipe: Transport;
}

/** The options of the server's end of a link. */
export function linkOptions(
  graceMs: number,
  { options, cluster }: Pick<RunTunnelDeps, "options" | "cluster">,
): LinkOptions {
  const { replayBuffer: replayBytes, keepaliveMs } = options;
  return { graceMs, replayBytes, pool: cluster.memory.links, silenceMs: silenceMs(keepaliveMs) };
}

/** Runs a tunnel from its first connection to its end, and logs what happens to it. */
export async function runTunnel(
  { link, pipe }: TunnelTransport,
  { agentId, instance, software, probe = false }: Pick<Hello, "agentId" | "instance" | "software" | "probe">,
  { place, entry, identifiers }: AdmittedAgent,
  { identity, peer, token }: Credential,
  { options, cluster, links, servers, metrics, agentLog }: RunTunnelDeps,
): Promise<void> {
  const agent = { agentId, instance, identity, peer, software: printable(software), probe, identifiers };
  entry.link = link;
  entry.goodUntil = peer?.notAfter;
  const innerTls = pipe !== link;
  const line = { cluster: cluster.name, agent: agentId, tunnel: entry.id, remote: link.remote };
  const log = (level: "info" | "warn", fields: Readonly<Record<string, unknown>>, message: string) =>
    agentLog.write(level, { cluster, identity, agentId }, { ...line, ...fields }, message);
  const tunnel = new Tunnel(
    agent,
    link,
    {
      onSuspended: (cause) => onSuspended(cause),
      onResumed: (resumption) => onResumed(resumption),
      onClosed: () => links.forget(entry.id),
    },
    sessionOptions(options, cluster.memory),
    { pipe, probes: cluster.probes },
  );
  place.hold(tunnel);
  const endCount = servers.onChange((count) => link.sendControl({ type: "servers", count }));
  if (!probe) metrics.tunnelOpened(cluster.name);
  const kind = {
    ...(innerTls && { innerTls }),
    ...(probe && { probe }),
    ...(!isEmpty(identifiers) && { identifiers }),
  };
  log("info", { identity, software: agent.software, ...kind }, "tunnel opened");
  const watch =
    token && watchToken(token, tunnel, (reason, detail) => log("warn", { reason, detail }, "token not verified"));
  const ends = peer && watchCertificate(peer, tunnel);
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
  if (!probe) metrics.tunnelClosed(cluster.name, reason === undefined ? "closed" : "lost", tunnel.resetForMemory);
  if (reason === undefined) log("info", {}, "tunnel closed");
  else log("warn", { reason: printable(reason.message) }, "tunnel lost");

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
}

/** At the end of the certificate the agent must have connected with a valid one, or do so when its link is resumed. */
function watchCertificate({ notAfter }: PeerIdentity, tunnel: Tunnel): CertificateWatch {
  return new CertificateWatch(notAfter, {
    onAsk: (reason) => tunnel.rotate(reason),
    onExpired: (reason) => tunnel.requireProof(reason, 0),
  });
}

/** How often the token of an open tunnel is verified again, ms. */
const VERIFY_EVERY_MS = 60_000;
/** How long an agent may take to send a fresh token after it was asked for one, ms. */
const PATIENCE_MS = 10_000;

function watchToken(
  { text, identity, verifier }: ProvenToken,
  tunnel: Tunnel,
  onUnavailable: (reason: string, detail: string) => void,
): TokenWatch {
  const owner = {
    onAsk: (reason: string) => tunnel.rotate(reason),
    onTimeout: (reason: string) => tunnel.destroy(new Error(reason)),
    onUnavailable,
  };
  return new TokenWatch(text, identity, owner, { verifier, everyMs: VERIFY_EVERY_MS, patienceMs: PATIENCE_MS });
}
