import { type CarrierLost, PeerViolation } from "../../shared/link/carrier-end.ts";
import type { Hello } from "../../shared/link/control.ts";
import type { Link } from "../../shared/link/link.ts";
import { LinkLost, type LinkOptions, type ResumeReport } from "../../shared/link/link-options.ts";
import { silenceMs } from "../../shared/link/liveness.ts";
import { printable } from "../../shared/outcomes.ts";
import type { PeerIdentity } from "../../shared/tls/identity.ts";
import { isViolation } from "../../shared/yamux/errors.ts";
import type { Transport } from "../../shared/yamux/transport.ts";
import type { ServerMetrics } from "../metrics/server-metrics.ts";
import type { ServerOptions } from "../options/options.ts";
import { TokenWatch } from "../tokens/token-watch.ts";
import type { Credential, ProvenToken } from "../tunnels/credential.ts";
import type { Links, ResumableLink } from "../tunnels/links.ts";
import type { ClusterTunnels, Place } from "../tunnels/registry.ts";
import { Tunnel } from "../tunnels/tunnel.ts";
import type { AgentLog } from "./agent-log.ts";
import { CertificateWatch } from "./certificate-watch.ts";
import { windowsAtFirst } from "./hello.ts";

export interface HoldDeps {
  readonly options: Pick<
    ServerOptions,
    "replayBuffer" | "keepaliveMs" | "initialWindow" | "maxWindow" | "sessionBudget" | "maxStreams"
  >;
  readonly cluster: ClusterTunnels;
  readonly links: Links;
  readonly metrics: ServerMetrics;
  readonly agentLog: AgentLog;
}

/** What a new tunnel has got: a place, and a name for its link. */
export interface Admitted {
  readonly place: Place;
  readonly entry: ResumableLink;
}

/** A link, and what the session runs on: the inner TLS over it, or the link itself. */
interface Held {
  readonly link: Link;
  readonly pipe: Transport;
}

/** How the server's end of a link behaves. */
export function linkOptions(graceMs: number, { options, cluster }: Pick<HoldDeps, "options" | "cluster">): LinkOptions {
  const { replayBuffer: replayBytes, keepaliveMs } = options;
  return { graceMs, replayBytes, pool: cluster.memory.links, silenceMs: silenceMs(keepaliveMs) };
}

/** A tunnel, from its first connection to its end. */
export async function hold(
  { link, pipe }: Held,
  { agentId, instance, software, probe = false }: Pick<Hello, "agentId" | "instance" | "software" | "probe">,
  { place, entry }: Admitted,
  { identity, peer, token }: Credential,
  { options, cluster, links, metrics, agentLog }: HoldDeps,
): Promise<void> {
  const agent = { agentId, instance, identity, peer, software: printable(software), probe };
  entry.link = link;
  entry.goodUntil = peer?.notAfter;
  const innerTls = pipe !== link;
  const line = { cluster: cluster.name, agent: agentId, tunnel: entry.id, remote: link.remote };
  const tell = (level: "info" | "warn", fields: Readonly<Record<string, unknown>>, message: string) =>
    agentLog.write(level, { cluster, identity, agentId }, { ...line, ...fields }, message);
  const tunnel = new Tunnel(
    agent,
    link,
    {
      onSuspended: (cause) => onSuspended(cause),
      onResumed: (resumption) => onResumed(resumption),
      onClosed: () => links.forget(entry.id),
    },
    {
      ...windowsAtFirst(options),
      maxWindow: options.maxWindow,
      budget: options.sessionBudget,
      pool: cluster.memory,
      maxStreams: options.maxStreams,
    },
    { pipe, probes: cluster.probes },
  );
  place.hold(tunnel);
  if (!probe) metrics.tunnelOpened(cluster.name);
  const kind = { ...(innerTls && { innerTls }), ...(probe && { probe }) };
  tell("info", { identity, software: agent.software, ...kind }, "tunnel opened");
  const watch =
    token && watchToken(token, tunnel, (reason, detail) => tell("warn", { reason, detail }, "token not judged"));
  const ends = peer && watchCertificate(peer, tunnel);
  entry.onCredential = ({ token: fresh, peer: renewed }) => {
    tunnel.proven(renewed);
    entry.goodUntil = renewed?.notAfter;
    if (renewed) ends?.renewed(renewed.notAfter);
    if (fresh) watch?.renewed(fresh.text, fresh.identity);
  };

  const reason = await tunnel.closedWith;
  watch?.close();
  ends?.close();
  if (reason instanceof PeerViolation || isViolation(reason)) cluster.pace.offended(agent);
  if (reason instanceof LinkLost) metrics.links.graceOver(reason.graceMs);
  if (!probe) metrics.tunnelClosed(cluster.name, reason === undefined ? "closed" : "lost", tunnel.resetForMemory);
  if (reason === undefined) tell("info", {}, "tunnel closed");
  else tell("warn", { reason: printable(reason.message) }, "tunnel lost");

  function onSuspended({ lossCause, message, ageMs, idleMs }: CarrierLost): void {
    metrics.links.suspended(lossCause);
    const times = { ageMs: Math.round(ageMs), idleMs: Math.round(idleMs) };
    const { streamCount: streams } = tunnel;
    const reason = printable(message);
    tell("warn", { remote: tunnel.remote, streams, cause: lossCause, reason, ...times }, "tunnel suspended");
    if (place.abandoned) tunnel.destroy(new Error("the agent has begun anew"));
  }

  function onResumed(resumption: ResumeReport): void {
    const { suspendedMs, replayedBytes } = resumption;
    metrics.links.resumed(resumption);
    cluster.tunnelResumed();
    const times = { suspendedMs: Math.round(suspendedMs), replayedBytes };
    tell("info", { remote: tunnel.remote, ...times }, suspendedMs === 0 ? "tunnel moved" : "tunnel resumed");
  }
}

/** Who has come back with a certificate that is still good goes on; who is without a carrier may prove it when it has one. */
function watchCertificate({ notAfter }: PeerIdentity, tunnel: Tunnel): CertificateWatch {
  return new CertificateWatch(notAfter, {
    onAsk: (reason) => tunnel.rotate(reason),
    onExpired: (reason) => tunnel.mustProve(reason, 0),
  });
}

/** How often the token behind a tunnel is judged again, ms; and how long an agent that is asked for a fresh one may take. */
const JUDGE_EVERY_MS = 60_000;
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
  return new TokenWatch(text, identity, owner, { verifier, everyMs: JUDGE_EVERY_MS, patienceMs: PATIENCE_MS });
}
