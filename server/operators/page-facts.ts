import { monitorEventLoopDelay } from "node:perf_hooks";
import { buildInfo } from "../../shared/basics/program.ts";
import { oncePerSecond } from "../../shared/basics/timers.ts";
import { loadMeter } from "../../shared/node/engine.ts";
import type { Expiring } from "../../shared/tls/expiry.ts";
import type { ClusterRuntime } from "../cluster-runtime/cluster-runtime.ts";
import type { RefusedPeerCount } from "../metrics/cluster-figures.ts";
import type { ServerContext } from "../tunnels/context.ts";
import type { CertificateFact, ClusterFact, ClusterState, Facts, LoadFact, RefusalFact } from "./facts.ts";
import type { FeedSource } from "./feed.ts";
import { OtherPages, type Summary } from "./other-pages.ts";
import type { ServerView } from "./server-view.ts";
import { shownCluster, shownTunnel } from "./shown.ts";
import type { TrafficHistory } from "./traffic-history.ts";

/** Refusals and certificates that the page lists; of one cluster it has all. */
const MAX_LISTED = 50;
/**
 * Beside those whose document, agents or refusals have changed, this many clusters are looked at for one message: 2 ms
 * of work, so that callers feel no page however many clusters there are. All else about a thousand is at most 20 s old.
 */
const CLUSTERS_IN_TURN = 50;
/** Among a thousand clusters the lists of all are made for each of this many messages, since they take 5 ms. */
const LISTS_EVERY = 5;
/** A busy loop is late by as much as its timers are, beyond this period, ms. */
const DELAY_RESOLUTION_MS = 20;

/** The parts of the operators' ports that the page shows. */
export interface PageSource {
  readonly view: ServerView;
  readonly context: ServerContext;
  readonly history: TrafficHistory;
  /** Differs from that of all other processes. */
  readonly instance: string;
  /** The problems of `/status` that are not of a cluster that is served. */
  ownProblems(): string[];
}

/** The parts of one cluster in the facts that are lists. */
interface OfCluster {
  readonly problems: readonly string[];
  readonly certificates: readonly Expiring[];
  readonly refusals: readonly RefusalFact[];
}

/** The facts of the page, each made when somebody looks. */
export class PageFacts implements FeedSource {
  readonly #source: PageSource;
  readonly #startedAt = new Date(Date.now() - process.uptime() * 1_000).toISOString();
  readonly #delay = monitorEventLoopDelay({ resolution: DELAY_RESOLUTION_MS });
  readonly #busy = loadMeter();
  /** By the name of the cluster. */
  readonly #looked = new Map<string, OfCluster>();
  /** Names of the clusters that are looked at for the next messages, whether they have changed or not. */
  #due: string[] = [];
  #messages = 0;
  #history = { steps: -1, shown: {} };
  readonly #others: OtherPages;

  constructor(source: PageSource) {
    this.#source = source;
    this.#others = new OtherPages(source.context.options.adminPeers, source.instance);
  }

  *all(): Generator<readonly [string, unknown]> {
    const { view, history } = this.#source;
    yield ["server", this.#server()];
    yield ["load", this.#load()];
    if (this.#due.length === 0) this.#due = [...this.#looked.keys()];
    for (const name of new Set([...this.#changed(), ...this.#due.splice(0, CLUSTERS_IN_TURN)])) {
      const runtime = view.served.clusters?.get(name);
      if (runtime === undefined) this.#looked.delete(name);
      yield [`cluster/${name}`, runtime && this.#look(runtime)];
    }
    if (this.#due.length === 0 || this.#messages++ % LISTS_EVERY === 0) yield* Object.entries(this.#lists());
    if (this.#history.steps !== history.steps) this.#history = { steps: history.steps, shown: history.shown() };
    yield ["history", this.#history.shown];
    yield ["phases", history.phases()];
    yield ["others", this.#others.facts()];
  }

  /** The names of those that have changed; at first all. */
  #changed(): Iterable<string> {
    const { tunnels } = this.#source.context;
    const changed = tunnels.changed ?? tunnels.clusters.keys();
    tunnels.changed = new Set();
    return changed;
  }

  #look(runtime: ClusterRuntime): ClusterFact {
    const { name } = runtime.cluster;
    const refusals = runtime.figures.refusals.list();
    this.#looked.set(name, {
      problems: this.#problemsOf(runtime),
      certificates: [...runtime.expiring()],
      refusals: refusals.map((refusal) => ({ ...refusal, cluster: name })),
    });
    return clusterFact(runtime, this.#source.history, refusals);
  }

  /** For the pages of the other servers. */
  readonly summary = oncePerSecond((): Summary => {
    const { view, context, instance } = this.#source;
    const agentsOf: Record<string, number> = {};
    const sums = { clusters: 0, agents: 0, open: 0, bytesPerSecond: 0 };
    for (const { cluster, tunnels, figures } of view.served.clusters?.all() ?? []) {
      let agents = 0;
      for (const { agent, suspended } of tunnels.tunnels()) if (!agent.probe && !suspended) agents++;
      if (agents > 0) agentsOf[cluster.name] = agents;
      sums.clusters++;
      sums.agents += agents;
      sums.open += tunnels.establishedConnects;
      sums.bytesPerSecond += figures.perSecond.bytes;
    }
    const { version } = buildInfo();
    return { serverId: context.options.serverId, instance, version, draining: view.ending(), ...sums, agentsOf };
  });

  /** Nobody looks any more. */
  stop(): void {
    this.#source.context.tunnels.changed = undefined;
    this.#looked.clear();
    this.#due = [];
    this.#messages = 0;
    this.#delay.disable();
  }

  *ofCluster(name: string): Generator<readonly [string, unknown]> {
    const { view, history } = this.#source;
    const runtime = view.served.clusters?.get(name);
    if (runtime === undefined) return;
    const certificates = Array.from(runtime.expiring(), certificateFact);
    const detail = { ...shownCluster(runtime), problems: this.#problemsOf(runtime), certificates };
    yield ["detail", { ...detail, history: history.shown(name), elsewhere: this.#others.withAgentsOf(name) }];
    for (const tunnel of runtime.tunnels.tunnels()) {
      // No ping because somebody looks: the tunnel has the least of those that it has sent by itself.
      yield [`agent/${tunnel.id}`, shownTunnel(tunnel, tunnel.rttMs === 0 ? undefined : tunnel.rttMs)];
    }
  }

  #server() {
    const { view, context } = this.#source;
    const { version, node } = buildInfo();
    return {
      ...{ serverId: context.options.serverId, version, node, startedAt: this.#startedAt },
      ...{ draining: view.ending(), servers: context.servers.value ?? null, listeners: view.shownAddresses() },
    };
  }

  #load(): LoadFact {
    const { rss, heapUsed } = process.memoryUsage();
    const delayMs = this.#delay.max / 1e6 - DELAY_RESOLUTION_MS;
    this.#delay.reset();
    this.#delay.enable();
    return {
      at: new Date().toISOString(),
      memory: this.#source.context.pool.report(),
      ...{ rssBytes: rss, heapBytes: heapUsed, loopBusy: Math.round(this.#busy() * 100) / 100 },
      loopDelayMs: Math.max(0, Math.round(delayMs)),
    };
  }

  /** Of a document: what is wrong with flags has ended the start. */
  #problemsOf(runtime: ClusterRuntime): string[] {
    return this.#source.view.served.store === undefined ? [] : runtime.problems();
  }

  /** With those that are of no cluster: of flags, of links to other servers, of peers that have reached no cluster. */
  #lists(): Pick<Facts, "problems" | "certificates" | "refusals"> {
    const { view, context, ownProblems } = this.#source;
    const { served, others } = view;
    const listed = [...this.#looked.values()];
    const own = [...(served.flags?.expiring() ?? []), ...(others.peers?.expiring() ?? [])];
    const refused = context.metrics.refusals.list().map((refusal) => ({ ...refusal, cluster: "" }));
    return {
      problems: [...ownProblems(), ...listed.flatMap(({ problems }) => problems)],
      certificates: [...own, ...listed.flatMap(({ certificates }) => certificates)]
        .sort((a, b) => a.notAfter.getTime() - b.notAfter.getTime())
        .slice(0, MAX_LISTED)
        .map(certificateFact),
      refusals: [...refused, ...listed.flatMap(({ refusals }) => refusals)]
        .sort((a, b) => (a.at < b.at ? 1 : -1))
        .slice(0, MAX_LISTED),
    };
  }
}

function certificateFact({ cluster, thing, by, consequence, notBefore, notAfter }: Expiring): CertificateFact {
  const dates = { notBefore: notBefore.toISOString(), notAfter: notAfter.toISOString() };
  return { cluster, thing, by, consequence, ...dates };
}

/** After the last caller whose credential was refused, its cluster is shown as such for this time, ms. */
const REFUSED_MS = 15 * 60_000;

function isOfLateCaller({ side, code, at }: RefusedPeerCount): boolean {
  return side === "caller" && code === "unauthenticated" && Date.now() - Date.parse(at) < REFUSED_MS;
}

function clusterFact(
  runtime: ClusterRuntime,
  history: TrafficHistory,
  refusals: readonly RefusedPeerCount[],
): ClusterFact {
  const { cluster, tunnels, figures } = runtime;
  let agents = 0;
  let suspendedLinks = 0;
  let standing = 0;
  let losses = 0;
  let isUnsteady = false;
  for (const tunnel of tunnels.tunnels()) {
    if (tunnel.agent.probe) continue;
    agents++;
    if (tunnel.suspended) suspendedLinks++;
    if (tunnel.standsStill) standing++;
    losses += tunnel.carriers.losses;
    isUnsteady ||= tunnel.carriers.isCutOften;
  }
  const stateOf = (): ClusterState => {
    if (cluster.suspended) return "suspended";
    if (agents === 0) return "no_agent";
    if (suspendedLinks === agents) return "link_lost";
    if (suspendedLinks > 0 || standing > 0) return "degraded";
    if (isUnsteady) return "unsteady";
    if (refusals.some(isOfLateCaller)) return "refused";
    return history.limitHitsOfLate(runtime) > 0 ? "limited" : "ok";
  };
  let limitHits = 0;
  for (const hits of figures.limitsHit.values()) limitHits += hits;
  return {
    ...{ cluster: cluster.name, state: stateOf(), agents, suspendedLinks, losses },
    ...{ open: tunnels.establishedConnects, pending: tunnels.pendingConnects },
    connectsPerSecond: figures.perSecond.connects,
    bytesPerSecond: figures.perSecond.bytes,
    failed: figures.connects - (figures.outcomes.get("ok") ?? 0),
    ...{ limitHits, refusedAt: refusals[0]?.at ?? null },
  };
}
