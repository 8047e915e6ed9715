import type { MemoryPool } from "../../shared/limits/memory-pool.ts";
import { type Check, countOnly, SHOWN_ON_ADMIN_PORT } from "../../shared/runtime/readiness.ts";
import type { Expiring } from "../../shared/tls/expiry.ts";
import { unfit } from "../../shared/tls/tls-material.ts";
import type { ClusterRuntime } from "../cluster-runtime/cluster-runtime.ts";
import type { TokenReviewState } from "../cluster-runtime/clusters.ts";
import type { CertificateState } from "../cluster-runtime/flags.ts";
import type { RecentRefusals } from "../metrics/refusals.ts";
import type { Tunnel } from "../tunnels/tunnel.ts";
import type { RoundTrips } from "./round-trips.ts";

/** What readiness looks at (design: "Seen from outside"). */
export interface Condition {
  /** Listeners that should be open, those that are, and why one is not if that is known. */
  readonly listeners: ReadonlyArray<{
    readonly name: string;
    readonly up: boolean;
    readonly problem?: string | undefined;
  }>;
  readonly certificates: readonly CertificateState[];
  /** Certificates and CAs, of clusters too, that end soon, and CAs that have ended. */
  readonly ends: readonly string[];
  /** Why some clusters are not served as their documents say; absent: the flags are the one cluster. */
  readonly clusters?: readonly string[] | undefined;
  /** What is odd about the configuration, and may be meant. */
  readonly warnings: readonly string[];
  readonly files: readonly Check[];
  readonly draining: boolean;
  /** Agents that take streams. */
  readonly agents: number;
  readonly readyNeedsAgent: boolean;
  /** Of clusters whose tokens an API server judges. */
  readonly tokenReviews: readonly TokenReviewState[];
  readonly readyNeedsTokenReview: boolean;
}

/** `shows`: the counts are for whoever reaches the health port, names of clusters and paths of files for operators. */
export function readiness(condition: Condition, shows: "names" | "counts", now = new Date()): Check[] {
  const { listeners, certificates, ends, clusters, warnings, files, draining, agents, readyNeedsAgent } = condition;
  const down = listeners.filter(({ up }) => !up);
  const all = shows === "names";
  const faults = clusters ?? [];
  return [
    { name: "listeners", ok: down.length === 0, detail: shownListeners(listeners, down, all) },
    {
      name: "certificates",
      // A broken new file leaves the old one in use: that is worth a word, and no reason to send callers away.
      ok: certificates.every((certificate) => unfit(certificate, now) === undefined),
      detail: [
        ...certificates.map((certificate) => shownCertificate(certificate, now, all)),
        ...shownWarnings(all ? atMost(MAX_TOLD, ends, "end soon") : ends, all),
      ].join("; "),
    },
    {
      name: "configuration",
      ok: true,
      detail: shownWarnings(warnings, all).join("; "),
    },
    // The old version of a document stays in use: the other clusters need this server.
    ...(clusters === undefined
      ? []
      : [{ name: "clusters", ok: true, hasFaults: faults.length > 0, detail: shownFaults(faults, all) }]),
    ...tokenReviewCheck(condition, all),
    ...files,
    { name: "not-draining", ok: !draining },
    { name: "agents", ok: agents > 0 || !readyNeedsAgent, detail: `${agents} connected` },
  ];
}

/** Without certificates that are of no use now: readiness, or the faults of the clusters, say so of these. */
export function* endingSoon(inUse: Iterable<Expiring>, now = new Date()): Generator<Expiring> {
  for (const expiring of inUse) {
    if (expiring.thing !== "certificate" || unfit(expiring, now) === undefined) yield expiring;
  }
}

/** So many are told one by one: a thousand clusters may have been set up on one day. */
const MAX_TOLD = 10;

function atMost(most: number, warnings: readonly string[], what: string): readonly string[] {
  const more = warnings.length - most;
  return more > 0 ? [...warnings.slice(0, most), `${more} more ${what}`] : warnings;
}

/**
 * Tunnels that stand go on, and so do clusters whose API server answers: a fault is a warning. Where an operator wants it,
 * a server that has never been answered is not ready, which ends a rolling update (decision 0027).
 */
function tokenReviewCheck({ tokenReviews, readyNeedsTokenReview }: Condition, all: boolean): Check[] {
  if (tokenReviews.length === 0) return [];
  const faults = tokenReviews.flatMap(({ cluster, reach }) =>
    reach.state === "failing" ? `cluster "${cluster}": ${reach.fault}` : [],
  );
  const has = tokenReviews.filter(({ reach }) => reach.state === "answers").length;
  const hasAnswered = has > 0 || tokenReviews.some(({ reach }) => reach.state === "failing" && reach.hasAnswered);
  const count = `${has} of ${tokenReviews.length} API servers answer`;
  const shown = shownWarnings(all ? atMost(MAX_TOLD, faults, "fail too") : faults, all);
  return [{ name: "token-reviews", ok: hasAnswered || !readyNeedsTokenReview, detail: [count, ...shown].join("; ") }];
}

function shownWarnings(warnings: readonly string[], all: boolean): string[] {
  if (warnings.length === 0) return [];
  return all ? warnings.map((warning) => `warning: ${warning}`) : [countOnly(warnings.length, "warning")];
}

function shownFaults(faults: readonly string[], all: boolean): string {
  if (!all || faults.length === 0) return countOnly(faults.length, "fault");
  return `${faults.length} fault${faults.length === 1 ? "" : "s"}: ${faults.join("; ")}`;
}

function shownListeners(all: Condition["listeners"], down: Condition["listeners"], withProblems: boolean): string {
  if (down.length === 0) return all.map(({ name }) => name).join(", ");
  const why = (problem: string | undefined): string => {
    if (problem === undefined) return "";
    return ` (${withProblems ? problem : SHOWN_ON_ADMIN_PORT})`;
  };
  return down.map(({ name, problem }) => `${name} not open${why(problem)}`).join(", ");
}

function shownCertificate(certificate: CertificateState, now: Date, withProblem: boolean): string {
  const { name, notAfter, problem } = certificate;
  const life = unfit(certificate, now) ?? `good until ${notAfter.toISOString()}`;
  const why = withProblem ? problem : SHOWN_ON_ADMIN_PORT;
  return `${name}: ${life}${problem === undefined ? "" : `, kept because its files are not usable now (${why})`}`;
}

/** What `/status` is made of. */
export interface Shown {
  readonly serverId: string;
  /** Where it listens, by the names that its log and metrics have for listeners. */
  readonly listeners: Readonly<Record<string, string>>;
  readonly clusters: Iterable<Pick<ClusterRuntime, "cluster" | "tunnels" | "figures">>;
  /** Who was refused and has come to no cluster. */
  readonly refusals: RecentRefusals;
  /** Why some clusters are not served as their documents say, and what runs out. */
  readonly problems: readonly string[];
  readonly pool: Pick<MemoryPool, "report">;
  readonly draining: boolean;
  readonly roundTrips: RoundTrips;
}

/** What `/status` shows: clusters, their agents, what each tunnel holds, and all of them together. */
export function status({ serverId, listeners, clusters, refusals, problems, pool, draining, roundTrips }: Shown) {
  return {
    kind: "server" as const,
    serverId,
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
    // What open connections have carried is not yet told by direction.
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
    // Of a ping that was sent for this answer; null: nothing came back in time.
    roundTripMs: roundTripMs === undefined ? null : Math.round(roundTripMs * 10) / 10,
  };
}
