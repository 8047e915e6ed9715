import { randomUUID } from "node:crypto";
import type { AddressInfo } from "node:net";
import { type Admin, startAdmin } from "../../shared/admin/admin.ts";
import type { Ui } from "../../shared/admin/pages.ts";
import { oncePerSecond, TurnQueue } from "../../shared/basics/timers.ts";
import type { Check } from "../../shared/runtime/check.ts";
import { type Expiring, expiryWarnings } from "../../shared/tls/expiry.ts";
import type { ServerContext } from "../tunnels/context.ts";
import { ROUND_TRIP_WITHIN_MS, type Tunnel } from "../tunnels/tunnel.ts";
import { type ConnectCheck, checkConnect } from "./connect-check.ts";
import { endingSoon, readiness, type ServerCondition } from "./readiness.ts";
import type { ServerView } from "./server-view.ts";
import { shownCluster, shownTunnel } from "./shown.ts";
import { TrafficHistory } from "./traffic-history.ts";

/** The health port and the admin port, and what they answer. */
export class OperatorPorts {
  readonly addresses: { health?: AddressInfo; admin?: AddressInfo } = {};
  readonly #view: ServerView;
  readonly #context: ServerContext;
  #health: Admin | undefined;
  #admin: Admin | undefined;
  #history: TrafficHistory | undefined;
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
        ...(options.adminUi && { ui: this.#ui() }),
      });
      this.addresses.admin = this.#admin.address;
    }
  }

  /** The page for browsers. It keeps what was carried lately, and loads nothing before it is asked for. */
  #ui() {
    const { metrics } = this.#context;
    const history = new TrafficHistory(
      () => this.#view.served.clusters?.all() ?? [],
      () => metrics.phaseTotals(),
    );
    this.#history = history;
    const source = {
      ...{ view: this.#view, context: this.#context, history, instance: this.#instance },
      ownProblems: () => [...this.#problemsBeside(), ...this.#faultsBeside()],
    };
    let page: Promise<Ui> | undefined;
    return () => {
      page ??= import("./page.ts").then(({ createPage }) => createPage(source));
      return page;
    };
  }

  /** The number of ports that are open. */
  get size(): number {
    return Object.keys(this.addresses).length;
  }

  async close(): Promise<void> {
    this.#history?.close();
    await Promise.all([this.#health?.close(), this.#admin?.close()]);
  }

  #condition(): ServerCondition {
    const { options, tunnels, files, servers, audit } = this.#context;
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
      files: [...files.checks(), ...(audit()?.checks() ?? []), ...(others.peers?.checks() ?? [])],
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
    const { options, servers, tunnels, metrics, pool } = this.#context;
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
      problems: [...this.#problemsBeside(), ...this.clusterFaults()],
      refusals: metrics.refusals.list(),
      clusters: [...(this.#view.served.clusters?.all() ?? [])].map((cluster) => ({
        ...shownCluster(cluster),
        // Of pings that were sent for this answer; null: no answer in time.
        tunnels: [...cluster.tunnels.tunnels()].map((tunnel) => shownTunnel(tunnel, roundTrips.get(tunnel))),
      })),
    };
  }

  /** Problems that are not of the clusters. */
  #problemsBeside(): string[] {
    const { files, audit } = this.#context;
    const others = [...(audit()?.checks() ?? []), ...(this.#view.others.peers?.checks() ?? [])];
    return [...files.problems(), ...faultsOf(others)];
  }

  /** Why some clusters are not served as their documents say. The server stays ready for the others. */
  clusterFaults(): string[] {
    const { store, clusters } = this.#view.served;
    if (store === undefined) return [];
    return [...this.#faultsBeside(), ...[...(clusters?.all() ?? [])].flatMap((runtime) => runtime.problems())];
  }

  /** Faults of documents that are not served, or only in part. */
  #faultsBeside(): string[] {
    const { store, clusters } = this.#view.served;
    if (store === undefined) return [];
    return [
      ...store.problems().map(({ file, sentence }) => `${file}: ${sentence}`),
      ...(clusters?.unserved() ?? []),
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
