import { TurnQueue } from "../../shared/basics/timers.ts";
import type { MemoryPool } from "../../shared/limits/memory-pool.ts";
import type { ClusterRuntime } from "../cluster-runtime/cluster-runtime.ts";
import type { RecentRefusals } from "../metrics/cluster-figures.ts";
import { ROUND_TRIP_WITHIN_MS, type Tunnel } from "../tunnels/tunnel.ts";

/** The facts that `/status` is made of. */
export interface StatusFacts {
  readonly serverId: string;
  /** Drawn at the start of the server. */
  readonly instance: string;
  /** How many servers there are, as far as this one knows. */
  readonly servers: number | undefined;
  /** Addresses by the names that log and metrics have for listeners. */
  readonly listeners: Readonly<Record<string, string>>;
  readonly clusters: Iterable<Pick<ClusterRuntime, "cluster" | "tunnels" | "figures">>;
  /** Refused peers that came to no cluster. */
  readonly refusals: RecentRefusals;
  /** Why some clusters are not served as their documents say, and which resources run out. */
  readonly problems: readonly string[];
  readonly pool: Pick<MemoryPool, "report">;
  readonly draining: boolean;
  readonly roundTrips: RoundTrips;
}

/** The document of `/status`: clusters, their agents, and what each tunnel holds. */
export function status({
  serverId,
  instance,
  servers,
  listeners,
  clusters,
  refusals,
  problems,
  pool,
  draining,
  roundTrips,
}: StatusFacts) {
  return {
    kind: "server" as const,
    serverId,
    instance,
    // null: not known
    servers: servers ?? null,
    listeners,
    draining,
    memory: pool.report(),
    problems,
    refusals: refusals.list(),
    clusters: [...clusters].map((cluster) => shownCluster(cluster, roundTrips)),
  };
}

export type ServerStatus = ReturnType<typeof status>;

function shownCluster(
  { cluster, tunnels, figures }: Pick<ClusterRuntime, "cluster" | "tunnels" | "figures">,
  roundTrips: RoundTrips,
) {
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
    tunnels: [...tunnels.tunnels()].map((tunnel) => shownTunnel(tunnel, roundTrips.get(tunnel))),
  };
}

function shownTunnel(tunnel: Tunnel, roundTripMs: number | undefined) {
  return {
    agent: tunnel.agent.agentId,
    tunnel: tunnel.id,
    identity: tunnel.agent.identity,
    instance: tunnel.agent.instance,
    software: tunnel.agent.software,
    identifiers: tunnel.agent.identifiers,
    remote: tunnel.remote,
    connectedAt: tunnel.connectedAt.toISOString(),
    probe: tunnel.agent.probe,
    draining: tunnel.leaving,
    suspended: tunnel.suspended,
    replayBytes: tunnel.replayBytes,
    streams: tunnel.streamCount,
    pendingOpens: tunnel.pendingOpens,
    bufferedBytes: tunnel.bufferedBytes,
    resetForMemory: tunnel.resetForMemory,
    // Of a ping that was sent for this answer; null: no answer in time.
    roundTripMs: roundTripMs === undefined ? null : Math.round(roundTripMs * 10) / 10,
  };
}

/** A busy loop sends thousands of pings slowly: the status waits so many times as long as for one agent. */
const ALL = 3;

/** Round trips of the tunnels whose agent has just answered a ping, ms. */
export type RoundTrips = ReadonlyMap<object, number>;

/**
 * Pings all tunnels, since earlier measurements may have gone another way or seen no queue. A few are sent in each turn
 * of the loop, and each has its time from then on: of thousands at once the last would wait for the work on the others.
 */
export async function roundTripsOf(
  tunnels: Iterable<Pick<Tunnel, "roundTrip">>,
  withinMs = ROUND_TRIP_WITHIN_MS,
): Promise<RoundTrips> {
  const measured = new Map<object, number>();
  const turns = new TurnQueue();
  let isOver = false;
  const measure = async (tunnel: Pick<Tunnel, "roundTrip">) => {
    const ms = isOver ? undefined : await within(withinMs, tunnel.roundTrip());
    if (ms !== undefined) measured.set(tunnel, ms);
  };
  const all = [...tunnels].map((tunnel) => new Promise<void>((resolve) => turns.run(() => resolve(measure(tunnel)))));
  await within(ALL * withinMs, Promise.all(all));
  isOver = true;
  return measured;
}

/** Resolves with `undefined` if the promise takes longer. */
function within<T>(ms: number, promise: Promise<T>): Promise<T | undefined> {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, ms, undefined);
    void promise.then((value) => {
      clearTimeout(timer);
      resolve(value);
    });
  });
}
