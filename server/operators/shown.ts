import { shownPace } from "../../shared/link/link-events.ts";
import type { ClusterRuntime } from "../cluster-runtime/cluster-runtime.ts";
import type { Tunnel } from "../tunnels/tunnel.ts";

// Clusters and tunnels as `/status` and the page at `/ui/` show them.

export function shownCluster({ cluster, tunnels, figures }: ClusterRuntime) {
  const { connects, perSecond, outcomes, carried, bytesUp, bytesDown, limitsHit, refusals } = figures;
  return {
    cluster: cluster.name,
    suspended: cluster.suspended,
    pendingConnects: tunnels.pendingConnects,
    connects: { total: connects, perSecond: perSecond.connects, outcomes: Object.fromEntries(outcomes) },
    // The bytes of open connections are not known by direction.
    bytes: { carried, perSecond: perSecond.bytes, up: bytesUp, down: bytesDown },
    limits: { set: cluster.limits, hit: Object.fromEntries(limitsHit) },
    refusals: refusals.list(),
  };
}

/** `roundTripMs`: of a ping; `undefined`: there was no answer. */
export function shownTunnel(tunnel: Tunnel, roundTripMs: number | undefined) {
  const { since, lostAt, resumes, losses, lastLoss } = tunnel.carriers;
  return {
    agent: tunnel.agent.agentId,
    tunnel: tunnel.id,
    protocol: tunnel.protocol,
    identity: tunnel.agent.identity,
    instance: tunnel.agent.instance,
    software: tunnel.agent.software,
    identifiers: tunnel.agent.identifiers,
    remote: tunnel.remote,
    proxy: tunnel.agent.proxy ?? null,
    connectedAt: tunnel.connectedAt.toISOString(),
    carriers: {
      since: since.toISOString(),
      lostAt: lostAt?.toISOString() ?? null,
      resumes,
      losses,
      lastLoss: lastLoss === undefined ? null : { ...lastLoss, at: lastLoss.at.toISOString() },
    },
    probe: tunnel.agent.probe,
    draining: tunnel.leaving,
    suspended: tunnel.suspended,
    standsStill: tunnel.standsStill,
    replayBytes: tunnel.replayBytes,
    streams: tunnel.streamCount,
    pendingOpens: tunnel.pendingOpens,
    bufferedBytes: tunnel.bufferedBytes,
    resetForMemory: tunnel.resetForMemory,
    roundTripMs: roundTripMs === undefined ? null : Math.round(roundTripMs * 10) / 10,
    pace: shownPace(tunnel.pace),
  };
}
