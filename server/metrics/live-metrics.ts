import type { AgentIdentifiers } from "../../shared/address/agent-identifiers.ts";
import type { LinkMetrics } from "../../shared/runtime/common-metrics.ts";
import { type ByCluster, type Instruments, NumberMetric, sumOf } from "../../shared/runtime/metrics.ts";
import { mayChoose, type Strategy } from "../clusters/routing-rules.ts";

/** A cluster's CONNECTs, counted in the object of the cluster itself, so that nothing is looked up by name. */
export interface ClusterConnects {
  readonly name: string;
  /** From their arrival to their end. */
  openConnects: number;
  /** CONNECTs that were answered with 200. */
  establishedConnects: number;
}

/** The numbers of a tunnel at a scrape. */
export interface LiveTunnel {
  readonly agent: { readonly probe: boolean; readonly identifiers: AgentIdentifiers };
  readonly protocol: "culvert" | "konnectivity";
  readonly standsStill: boolean;
  /** The agent accepts no callers' streams: it only measures, or is leaving. */
  readonly draining: boolean;
  readonly suspended: boolean;
  readonly streamCount: number;
  /** Bytes that are held in its windows. */
  readonly bufferedBytes: number;
  /** Streams that were reset for their memory. */
  readonly resetForMemory: number;
}

/** The numbers of a configured cluster at a scrape. */
export interface LiveCluster extends Readonly<ClusterConnects> {
  readonly pendingConnects: number;
  /** Why it takes nobody, such as that it is suspended. */
  readonly closedBecause: string | undefined;
  readonly rules: { readonly strategies: readonly Strategy[] };
  tunnels(): Iterable<LiveTunnel>;
}

/** The connected agents that each strategy in use may choose, apart from `default`, which may choose all. */
function agentsByStrategy(clusters: Iterable<LiveCluster>): Map<Strategy, number> {
  const agents = new Map<Strategy, number>();
  for (const cluster of clusters) {
    for (const strategy of new Set(cluster.rules.strategies)) {
      if (strategy === "default") continue;
      const isReady = ({ agent, draining, suspended }: LiveTunnel) =>
        !draining && !suspended && mayChoose(strategy, agent.identifiers);
      agents.set(strategy, (agents.get(strategy) ?? 0) + count(cluster, (tunnel) => Number(isReady(tunnel))));
    }
  }
  return agents;
}

/** The sum of a number of all tunnels of a cluster. */
export function count(cluster: LiveCluster, read: (tunnel: LiveTunnel) => number): number {
  let sum = 0;
  for (const tunnel of cluster.tunnels()) sum += read(tunnel);
  return sum;
}

type CountedConnects = "openConnects" | "establishedConnects" | "pendingConnects";

/** The names of Konnectivity's metrics begin with this. */
export const KONNECTIVITY = "konnectivity_network_proxy_server";

/** Current numbers, with Konnectivity's names as aliases: read when metrics are scraped. */
export class LiveMetrics {
  // These are counted beside the clusters, since what a removed cluster has open is still there.
  readonly connects = new NumberMetric();
  readonly established = new NumberMetric();
  readonly pending = new NumberMetric();
  readonly tunnels = new NumberMetric();
  /** Streams reset for memory in tunnels that have ended; open tunnels are asked. */
  resetForMemory = 0;
  readonly #links: LinkMetrics;
  #live: () => Iterable<LiveCluster> = () => [];

  constructor(make: Instruments, links: LinkMetrics) {
    this.#links = links;
    this.#describeConnects(make);
    this.#describeTunnels(make);
    make.total(
      "culvert_server_streams_reset_for_memory_total",
      "Streams reset because their tunnel held more than --session-budget of unread bytes.",
      () => this.resetForMemory + this.#sum(({ resetForMemory }) => resetForMemory),
    );
  }

  #describeConnects(make: Instruments): void {
    const connects = (name: string, alias: string, help: string, all: NumberMetric, of: CountedConnects): void => {
      const readAll = () => all.value;
      make.gaugeByCluster(name, help, () => this.#each((cluster) => cluster[of]), readAll);
      make.gauge([`${KONNECTIVITY}_${alias}`], help, readAll);
    };
    const opens = "CONNECTs from their arrival to their end.";
    const established = "CONNECTs answered with 200 and not over.";
    const pending = "CONNECTs waiting for an agent's answer.";
    connects("culvert_server_connections", "http_connections", opens, this.connects, "openConnects");
    connects(
      "culvert_server_established_connections",
      "established_connections",
      established,
      this.established,
      "establishedConnects",
    );
    connects("culvert_server_pending_opens", "pending_backend_dials", pending, this.pending, "pendingConnects");
  }

  #describeTunnels(make: Instruments): void {
    // A suspended cluster has no agents on purpose: who asks for clusters without one does not mean it.
    const agents = () => [...this.#agents()];
    make.gaugeByCluster(
      "culvert_server_agents",
      "Agents that take connections: connected, and not going away. Absent for suspended clusters.",
      agents,
      () => (agents().length === 0 ? undefined : sumOf(agents())),
    );
    make.gaugeByCluster(
      "culvert_server_tunnels",
      "Tunnels of agents: also those that have lost their connection, or are going away.",
      () => this.#each((cluster) => count(cluster, ({ agent }) => (agent.probe ? 0 : 1))),
      () => this.tunnels.value,
    );
    make.gaugeByCluster("culvert_server_konnectivity_agents", "Tunnels of Konnectivity's own agents.", () =>
      this.#each((cluster) => count(cluster, ({ protocol }) => (protocol === "konnectivity" ? 1 : 0))),
    );
    make.gaugeByCluster(
      "culvert_server_agents_standing_still",
      "Konnectivity's agents that take no packets, because one of their targets takes nothing: others are asked.",
      () => this.#each((cluster) => count(cluster, ({ standsStill }) => (standsStill ? 1 : 0))),
    );
    make.gaugeByCluster("culvert_server_streams", "Open streams in tunnels.", () =>
      this.#each((cluster) => count(cluster, ({ streamCount }) => streamCount)),
    );
    make.gaugeByCluster("culvert_server_buffered_bytes", "Bytes that wait in tunnels for a slow reader.", () =>
      this.#each((cluster) => count(cluster, ({ bufferedBytes }) => bufferedBytes)),
    );
    make.gauge([`${KONNECTIVITY}_ready_backend_connections`], "Agents connected now.", () => this.#readyTunnels);
    make.gauges(`${KONNECTIVITY}_ready_backends`, "Agents connected now.", ["proxy_strategy"], () => [
      [["default"], this.#readyTunnels],
      ...[...agentsByStrategy(this.#live())].map(([strategy, agents]) => [[strategy], agents] as const),
    ]);
    make.gauges(`${KONNECTIVITY}_grpc_connections`, "Agents connected now.", ["service_method"], () => [
      [["Connect"], this.#readyTunnels],
    ]);
  }

  *#agents(): ByCluster {
    for (const cluster of this.#live()) {
      const all = count(cluster, ({ draining, suspended }) => (draining || suspended ? 0 : 1));
      if (cluster.closedBecause === undefined) yield [cluster.name, all];
    }
  }

  /** A number for each configured cluster, also 0: a missing agent must be visible. */
  *#each(read: (cluster: LiveCluster) => number): ByCluster {
    for (const cluster of this.#live()) yield [cluster.name, read(cluster)];
  }

  #sum(read: (tunnel: LiveTunnel) => number): number {
    let sum = 0;
    for (const cluster of this.#live()) sum += count(cluster, read);
    return sum;
  }

  /** Without suspended links, so that alerts on Konnectivity's names notice them. */
  get #readyTunnels(): number {
    return Math.max(0, this.tunnels.value - this.#links.suspendedNow);
  }

  /** Sets the source of the live numbers of the configured clusters; called once. */
  watch(live: () => Iterable<LiveCluster>): void {
    this.#live = live;
  }
}
