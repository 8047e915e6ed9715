import type { Check } from "../shared/process/admin.ts";
import type { Registry } from "./tunnels/registry.ts";

/** What readiness looks at (design: "Seen from outside"). */
export interface Condition {
  /** Listeners that should be open and those that are. */
  readonly listeners: ReadonlyArray<{ readonly name: string; readonly up: boolean }>;
  /** Certificates in use: when they expire, and why newer files are not in use. */
  readonly certificates: ReadonlyArray<{
    readonly name: string;
    readonly notAfter: Date;
    readonly problem: string | undefined;
  }>;
  readonly warnings: readonly string[];
  readonly draining: boolean;
  /** Agents that take streams. */
  readonly agents: number;
  readonly readyNeedsAgent: boolean;
}

export function readiness(condition: Condition, now = new Date()): Check[] {
  const { listeners, certificates, warnings, draining, agents, readyNeedsAgent } = condition;
  const down = listeners.filter(({ up }) => !up);
  const expired = certificates.filter(({ notAfter }) => notAfter <= now);
  // A broken new file leaves the old one in use: that is worth a word, and no reason to send callers away.
  const remarks = [
    ...expired.map(({ name, notAfter }) => `the certificate for ${name} expired on ${notAfter.toISOString()}`),
    ...certificates.flatMap(({ name, problem }) => (problem === undefined ? [] : [`${name}: ${problem}`])),
    ...warnings,
  ];
  return [
    { name: "listeners", ok: down.length === 0, detail: shown(listeners, down) },
    { name: "configuration", ok: expired.length === 0, detail: remarks.join("; ") },
    { name: "not-draining", ok: !draining },
    { name: "agents", ok: agents > 0 || !readyNeedsAgent, detail: `${agents} connected` },
  ];
}

function shown(all: Condition["listeners"], down: Condition["listeners"]): string {
  if (down.length > 0) return `${down.map(({ name }) => name).join(", ")} not open`;
  return all.map(({ name }) => name).join(", ");
}

/** What `/status` shows: clusters, their agents, and what each tunnel holds. */
export function status(serverId: string, tunnels: Registry, draining: boolean): unknown {
  return {
    serverId,
    draining,
    clusters: [...tunnels.clusters()].map((cluster) => ({
      cluster: cluster.name,
      pendingConnects: cluster.pendingConnects,
      tunnels: [...cluster.tunnels()].map((tunnel) => ({
        agent: tunnel.agent.agentId,
        tunnel: tunnel.id,
        identity: tunnel.agent.identity,
        instance: tunnel.agent.instance,
        software: tunnel.agent.software,
        remote: tunnel.remote,
        connectedAt: tunnel.connectedAt.toISOString(),
        draining: tunnel.draining,
        streams: tunnel.streamCount,
        pendingOpens: tunnel.pendingOpens,
        bufferedBytes: tunnel.bufferedBytes,
        roundTripMs: Math.round(tunnel.rttMs * 10) / 10,
      })),
    })),
  };
}
