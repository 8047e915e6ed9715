import type { IncomingMessage } from "node:http";
import { monitorEventLoopDelay, performance } from "node:perf_hooks";
import type { Ui } from "../../shared/admin/pages.ts";
import { buildInfo } from "../../shared/basics/program.ts";
import type { Expiring } from "../../shared/tls/expiry.ts";
import type { ClusterRuntime } from "../cluster-runtime/cluster-runtime.ts";
import type { CarrierRecord } from "../tunnels/carrier-record.ts";
import type { ServerContext } from "../tunnels/context.ts";
import { checkConnect } from "./connect-check.ts";
import type { CertificateFact, CheckLine, ClusterFact, ClusterState, LoadFact, RefusalFact } from "./facts.ts";
import { Feed } from "./feed.ts";
import { pageFiles } from "./page-files.ts";
import type { ServerView } from "./server-view.ts";
import { shownCluster, shownTunnel } from "./shown.ts";
import type { TrafficHistory } from "./traffic-history.ts";

/** Refusals and certificates that the page lists; of one cluster it has all. */
const MAX_LISTED = 50;
/** Certificates of a thousand clusters are looked at this seldom, ms. */
const CERTIFICATES_MS = 30_000;
/** A busy loop is late by as much as its timers are, beyond this period, ms. */
const DELAY_RESOLUTION_MS = 20;

/** The parts of the operators' ports that the page shows. */
export interface PageSource {
  readonly view: ServerView;
  readonly context: ServerContext;
  readonly history: TrafficHistory;
  problems(): string[];
  expiring(): Iterable<Expiring>;
}

/** What answers under `/ui/`. It is loaded with the first request there. */
export async function createPage(source: PageSource): Promise<Ui> {
  const facts = new PageFacts(source);
  const feed = new Feed({ all: () => facts.all(), ofCluster: (name) => facts.ofCluster(name) });
  const files = await pageFiles();
  return {
    file: (request, response) => files(request, response),
    events: (request, response) => {
      response.writeHead(200, { "content-type": "text/event-stream", ...LIVE });
      feed.add(response, clusterIn(request));
    },
    check: (asked, response) => {
      response.writeHead(200, { "content-type": "application/x-ndjson", ...LIVE });
      response.on("error", () => {});
      const write = (line: CheckLine) => response.write(`${JSON.stringify(line)}\n`);
      void checkConnect(asked, source.context, (steps) => write({ steps })).then((result) => {
        write(result);
        response.end();
      });
    },
  };
}

const LIVE = { "cache-control": "no-store", connection: "close", "x-content-type-options": "nosniff" };

function clusterIn({ url = "" }: IncomingMessage): string {
  return new URLSearchParams(url.split("?", 2)[1]).get("cluster") ?? "";
}

/** The facts of the page, each made when somebody looks. */
class PageFacts {
  readonly #source: PageSource;
  readonly #startedAt = new Date(Date.now() - process.uptime() * 1_000).toISOString();
  readonly #delay = monitorEventLoopDelay({ resolution: DELAY_RESOLUTION_MS });
  #busy = performance.eventLoopUtilization();
  #certificates: { readonly at: number; readonly all: readonly CertificateFact[] } = { at: -Infinity, all: [] };
  #history = { steps: -1, shown: {} };

  constructor(source: PageSource) {
    this.#source = source;
  }

  *all(): Generator<readonly [string, unknown]> {
    const { view, context, history } = this.#source;
    yield ["server", this.#server()];
    yield ["load", this.#load()];
    yield ["problems", this.#source.problems()];
    const refusals: RefusalFact[] = context.metrics.refusals.list().map((refusal) => ({ ...refusal, cluster: "" }));
    for (const runtime of view.served.clusters?.all() ?? []) {
      const { name: cluster } = runtime.cluster;
      const own = runtime.figures.refusals.list();
      refusals.push(...own.map((refusal) => ({ ...refusal, cluster })));
      yield [`cluster/${cluster}`, clusterFact(runtime, history, own[0]?.at ?? null)];
    }
    yield ["refusals", refusals.sort((a, b) => (a.at < b.at ? 1 : -1)).slice(0, MAX_LISTED)];
    yield ["certificates", this.#soonest()];
    if (this.#history.steps !== history.steps) this.#history = { steps: history.steps, shown: history.shown() };
    yield ["history", this.#history.shown];
  }

  *ofCluster(name: string): Generator<readonly [string, unknown]> {
    const { view, history } = this.#source;
    const runtime = view.served.clusters?.get(name);
    if (runtime === undefined) return;
    const certificates = Array.from(runtime.expiring(), certificateFact);
    const detail = { ...shownCluster(runtime), problems: runtime.problems(), certificates };
    yield ["detail", { ...detail, history: history.shown(name) }];
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
    const now = performance.eventLoopUtilization();
    const { utilization } = performance.eventLoopUtilization(now, this.#busy);
    this.#busy = now;
    const delayMs = this.#delay.max / 1e6 - DELAY_RESOLUTION_MS;
    this.#delay.reset();
    this.#delay.enable();
    return {
      at: new Date().toISOString(),
      memory: this.#source.context.pool.report(),
      ...{ rssBytes: rss, heapBytes: heapUsed, loopBusy: Math.round(utilization * 100) / 100 },
      loopDelayMs: Math.max(0, Math.round(delayMs)),
    };
  }

  /** The certificates that end first. */
  #soonest(): readonly CertificateFact[] {
    if (performance.now() - this.#certificates.at > CERTIFICATES_MS) {
      const all = Array.from(this.#source.expiring(), certificateFact);
      const sorted = all.sort((a, b) => (a.notAfter < b.notAfter ? -1 : 1)).slice(0, MAX_LISTED);
      this.#certificates = { at: performance.now(), all: sorted };
    }
    return this.#certificates.all;
  }
}

function certificateFact({ cluster, thing, by, consequence, notBefore, notAfter }: Expiring): CertificateFact {
  const dates = { notBefore: notBefore.toISOString(), notAfter: notAfter.toISOString() };
  return { cluster, thing, by, consequence, ...dates };
}

/** A link that is cut each minute is up whenever somebody looks. */
const OFTEN = { losses: 2, withinMs: 3 * 60_000 };

function isLostOften({ losses, lastLoss }: CarrierRecord): boolean {
  return losses >= OFTEN.losses && lastLoss !== undefined && Date.now() - lastLoss.at.getTime() < OFTEN.withinMs;
}

function clusterFact(runtime: ClusterRuntime, history: TrafficHistory, refusedAt: string | null): ClusterFact {
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
    isUnsteady ||= isLostOften(tunnel.carriers);
  }
  const stateOf = (): ClusterState => {
    if (cluster.suspended) return "suspended";
    if (agents === 0) return "no_agent";
    if (suspendedLinks === agents) return "link_lost";
    if (suspendedLinks > 0 || standing > 0) return "degraded";
    if (isUnsteady) return "unsteady";
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
    ...{ limitHits, refusedAt },
  };
}
