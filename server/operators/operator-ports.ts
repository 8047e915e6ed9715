import { randomUUID } from "node:crypto";
import type { AddressInfo } from "node:net";
import { type Admin, startAdmin } from "../../shared/admin/admin.ts";
import { oncePerSecond, TurnQueue } from "../../shared/basics/timers.ts";
import { shownPace } from "../../shared/link/link-events.ts";
import type { Check } from "../../shared/runtime/check.ts";
import { type Expiring, expiryWarnings } from "../../shared/tls/expiry.ts";
import type { ClusterRuntime } from "../cluster-runtime/cluster-runtime.ts";
import type { Clusters } from "../cluster-runtime/clusters.ts";
import type { FlagTls } from "../cluster-runtime/flag-certificates.ts";
import type { ClusterStore } from "../clusters/store.ts";
import type { ServerContext } from "../tunnels/context.ts";
import { ROUND_TRIP_WITHIN_MS, type Tunnel } from "../tunnels/tunnel.ts";
import { type ConnectCheck, checkConnect } from "./connect-check.ts";
import { endingSoon, type ReplicaState, readiness, type ServerCondition } from "./readiness.ts";

type ListenerState = ServerCondition["listeners"][number];

/** The parts of a server that operators see, beside its context. */
export interface ServerView {
  /** What is served: `undefined` in each field before the clusters are read. */
  readonly served: {
    readonly store: ClusterStore | undefined;
    readonly flags: FlagTls | undefined;
    readonly clusters: Clusters | undefined;
  };
  unixListeners(): Omit<ListenerState, "name">[];
  tcpListeners(): ListenerState[];
  shownAddresses(): Record<string, string>;
  /** True as soon as the server drains, or is about to. */
  ending(): boolean;
  /** The other servers of a fleet. */
  readonly others: {
    readonly peers: { checks(): Check[]; expiring(): Iterable<Expiring>; readonly canAsk: boolean } | undefined;
  };
  /** What counts the servers, if anything does. */
  replicas(): Omit<ReplicaState, "servers"> | undefined;
}

/** The health port and the admin port, and what they answer. */
export class OperatorPorts {
  readonly addresses: { health?: AddressInfo; admin?: AddressInfo } = {};
  readonly #view: ServerView;
  readonly #context: ServerContext;
  #health: Admin | undefined;
  #admin: Admin | undefined;
  // Each looks at every cluster, and any peer that reaches the health port may ask.
  readonly #recentFaults = oncePerSecond(() => this.clusterFaults());
  readonly #recentWarnings = oncePerSecond(() => this.#view.served.clusters?.warnings() ?? []);
  readonly #recentEnds = oncePerSecond(() => expiryWarnings(endingSoon(this.expiring()), new Date()));
  /** Tells this server from another one that was given the same `--server-id`. */
  readonly #instance = randomUUID();
  readonly #recentReviews = oncePerSecond(() => this.#view.served.clusters?.tokenReviews() ?? []);

  constructor(view: ServerView, context: ServerContext) {
    this.#view = view;
    this.#context = context;
  }

  /** Opens the ports that `isOn` selects; rejects with a `ConfigError`. */
  async open(isOn: (port: number) => boolean): Promise<void> {
    const { options, log, throttledLog, metrics } = this.#context;
    const { healthPort, healthBindAddress, healthShowsClusters, adminPort, adminBindAddress } = options;
    if (isOn(healthPort)) {
      const flags = { option: "--health-port", hostOption: "--health-bind-address" };
      const shows = healthShowsClusters ? "names" : "counts";
      this.#health = await startAdmin({
        log,
        throttledLog,
        ...flags,
        port: healthPort,
        host: healthBindAddress,
        metrics: healthShowsClusters ? metrics.registry : metrics.withoutNames,
        checks: () => readiness(this.#condition(), shows),
      });
      this.addresses.health = this.#health.address;
    }
    if (isOn(adminPort)) {
      const flags = { option: "--admin-port", hostOption: "--admin-bind-address" };
      this.#admin = await startAdmin({
        log,
        throttledLog,
        ...flags,
        port: adminPort,
        host: adminBindAddress,
        metrics: metrics.registry,
        checks: () => readiness(this.#condition(), "names"),
        status: () => this.status(),
        trial: (body): Promise<ConnectCheck> => checkConnect(body, this.#context),
        allowedHosts: options.adminAllowedHosts,
      });
      this.addresses.admin = this.#admin.address;
    }
  }

  /** The number of ports that are open. */
  get size(): number {
    return Object.keys(this.addresses).length;
  }

  async close(): Promise<void> {
    await Promise.all([this.#health?.close(), this.#admin?.close()]);
  }

  #condition(): ServerCondition {
    const { options, tunnels, files, servers } = this.#context;
    const { served, others } = this.#view;
    const replicas = this.#view.replicas();
    const unix = served.store === undefined ? this.#view.unixListeners() : [];
    let agents = 0;
    for (const { draining, suspended } of tunnels.tunnels()) if (!draining && !suspended) agents++;
    return {
      listeners: [...unix.map((state) => ({ name: "unix socket", ...state })), ...this.#view.tcpListeners()],
      certificates: served.flags?.certificates() ?? [],
      ends: this.#recentEnds(),
      clusters: served.store && this.#recentFaults(),
      warnings: this.#recentWarnings(),
      files: [...files.checks(), ...(others.peers?.checks() ?? [])],
      draining: this.#view.ending(),
      agents,
      canAskOthers: others.peers?.canAsk ?? false,
      readyNeedsAgent: options.readyNeedsAgent,
      tokenReviews: this.#recentReviews(),
      readyNeedsTokenReview: options.readyNeedsTokenReview,
      replicas: replicas && { servers: servers.value, source: replicas.source, fault: replicas.fault },
    };
  }

  /** The document of `/status`: clusters, their agents, and what each tunnel holds. */
  async status() {
    const { options, servers, tunnels, metrics, files, pool } = this.#context;
    const roundTrips = await roundTripsOf(tunnels.tunnels());
    return {
      kind: "server" as const,
      serverId: options.serverId,
      instance: this.#instance,
      // null: not known
      servers: servers.value ?? null,
      listeners: this.#view.shownAddresses(),
      draining: this.#view.ending(),
      memory: pool.report(),
      problems: [...files.problems(), ...this.clusterFaults(), ...faultsOf(this.#view.others.peers?.checks() ?? [])],
      refusals: metrics.refusals.list(),
      clusters: [...(this.#view.served.clusters?.all() ?? [])].map((cluster) => shownCluster(cluster, roundTrips)),
    };
  }

  /** Why some clusters are not served as their documents say. The server stays ready for the others. */
  clusterFaults(): string[] {
    const { store, clusters } = this.#view.served;
    if (store === undefined) return [];
    return [
      ...store.problems().map(({ file, sentence }) => `${file}: ${sentence}`),
      ...(clusters?.problems() ?? []),
      ...this.#view.unixListeners().flatMap(({ problem }) => problem ?? []),
    ];
  }

  /** The certificates and CAs of the flags, of all clusters, and for other servers. */
  *expiring(): Generator<Expiring> {
    yield* this.#view.served.flags?.expiring() ?? [];
    yield* this.#view.served.clusters?.expiring() ?? [];
    yield* this.#view.others.peers?.expiring() ?? [];
  }
}

export type ServerStatus = Awaited<ReturnType<OperatorPorts["status"]>>;

/** The faults of checks, in the words of /readyz?verbose. */
function faultsOf(checks: readonly Check[]): string[] {
  return checks.flatMap(({ name, hasFaults, detail = "" }) => (hasFaults ? `${name}: ${detail}` : []));
}

// ── /status ──────────────────────────────────────────────────────────────────────────────────────────────────────────

function shownCluster({ cluster, tunnels, figures }: ClusterRuntime, roundTrips: RoundTrips) {
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
    protocol: tunnel.protocol,
    identity: tunnel.agent.identity,
    instance: tunnel.agent.instance,
    software: tunnel.agent.software,
    identifiers: tunnel.agent.identifiers,
    remote: tunnel.remote,
    connectedAt: tunnel.connectedAt.toISOString(),
    probe: tunnel.agent.probe,
    draining: tunnel.leaving,
    suspended: tunnel.suspended,
    standsStill: tunnel.standsStill,
    replayBytes: tunnel.replayBytes,
    streams: tunnel.streamCount,
    pendingOpens: tunnel.pendingOpens,
    bufferedBytes: tunnel.bufferedBytes,
    resetForMemory: tunnel.resetForMemory,
    // Of a ping that was sent for this answer; null: no answer in time.
    roundTripMs: roundTripMs === undefined ? null : Math.round(roundTripMs * 10) / 10,
    pace: shownPace(tunnel.pace),
  };
}

/** A busy loop sends thousands of pings slowly: the status waits this many times as long as for one agent. */
const ALL = 3;

type Pinged = Pick<Tunnel, "roundTrip">;

/** Round trips of the tunnels whose agent has just answered a ping, ms. */
type RoundTrips = ReadonlyMap<object, number>;

/**
 * Pings all tunnels, since earlier measurements may have gone another way or seen no queue. A few are sent in each turn
 * of the loop, and each has its time from then on: of thousands at once the last would wait for the work on the others.
 */
export async function roundTripsOf(tunnels: Iterable<Pinged>, withinMs = ROUND_TRIP_WITHIN_MS): Promise<RoundTrips> {
  const measured = new Map<object, number>();
  const turns = new TurnQueue();
  let isOver = false;
  const measure = async (tunnel: Pinged) => {
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
