import { type Check, countOnly, SHOWN_ON_ADMIN_PORT } from "../../shared/runtime/check.ts";
import type { Expiring } from "../../shared/tls/expiry.ts";
import { unfit } from "../../shared/tls/tls-material.ts";
import type { TokenReviewState } from "../cluster-runtime/clusters.ts";
import type { CertificateState } from "../cluster-runtime/flag-certificates.ts";

/** The facts that readiness is made of. */
export interface ServerCondition {
  /** Listeners that should be open, whether they are, and why one is not, if that is known. */
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
  /** Warnings about an unusual configuration. */
  readonly warnings: readonly string[];
  readonly files: readonly Check[];
  readonly draining: boolean;
  /** Agents that take streams. */
  readonly agents: number;
  /** CONNECTs without an agent here can go to other servers. */
  readonly canAskOthers: boolean;
  readonly readyNeedsAgent: boolean;
  /** Clusters whose tokens an API server verifies. */
  readonly tokenReviews: readonly TokenReviewState[];
  readonly readyNeedsTokenReview: boolean;
  /** The count of servers; absent: nothing counts them. */
  readonly replicas?: ReplicaState | undefined;
}

/** How many servers there are, as far as this one knows. */
export interface ReplicaState {
  /** Absent: not known yet. */
  readonly servers: number | undefined;
  readonly source: string;
  /** Why the number may be out of date. */
  readonly fault: string | undefined;
}

/**
 * The checks of /readyz. `shows`: counts for every peer that reaches the health port, names and paths for operators.
 */
export function readiness(condition: ServerCondition, shows: "names" | "counts", now = new Date()): Check[] {
  const { listeners, certificates, ends, clusters, warnings, files, draining } = condition;
  const down = listeners.filter(({ up }) => !up);
  const all = shows === "names";
  return [
    { name: "listeners", ok: down.length === 0, detail: shownListeners(listeners, down, all) },
    {
      name: "certificates",
      // A broken new file leaves the old one in use: that is a detail, and no reason to be unready.
      ok: certificates.every((certificate) => unfit(certificate, now) === undefined),
      detail: [
        ...certificates.map((certificate) => shownCertificate(certificate, now, all)),
        ...shownWarnings(all ? firstOf(ends, "end soon") : ends, all),
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
      : [{ name: "clusters", ok: true, hasFaults: clusters.length > 0, detail: shownFaults(clusters, all) }]),
    ...tokenReviewCheck(condition, all),
    ...replicasCheck(condition.replicas, all),
    ...files,
    { name: "not-draining", ok: !draining },
    agentsCheck(condition),
  ];
}

/** Without an agent callers are served, too, where other servers can be asked. */
function agentsCheck({ agents, canAskOthers, readyNeedsAgent }: ServerCondition): Check {
  const serves = agents > 0 || canAskOthers;
  const hops = agents === 0 && canAskOthers ? "; CONNECTs go to other servers" : "";
  return { name: "agents", ok: serves || !readyNeedsAgent, hasFaults: !serves, detail: `${agents} connected${hops}` };
}

/** Leaves out certificates that are invalid now: readiness, or the faults of the clusters, report them. */
export function* endingSoon(inUse: Iterable<Expiring>, now = new Date()): Generator<Expiring> {
  for (const expiring of inUse) {
    if (expiring.thing !== "certificate" || unfit(expiring, now) === undefined) yield expiring;
  }
}

/** Number of warnings that are listed one by one: a thousand clusters may have been set up on one day. */
const MAX_LISTED = 10;

function firstOf(warnings: readonly string[], what: string): readonly string[] {
  const more = warnings.length - MAX_LISTED;
  return more > 0 ? [...warnings.slice(0, MAX_LISTED), `${more} more ${what}`] : warnings;
}

/**
 * Open tunnels go on, and so do clusters whose API server answers: a fault is a warning. If an operator wants it, a
 * server that has never got an answer is not ready, which stops a rolling update (decision 0027).
 */
function tokenReviewCheck({ tokenReviews, readyNeedsTokenReview }: ServerCondition, all: boolean): Check[] {
  if (tokenReviews.length === 0) return [];
  const faults = tokenReviews.flatMap(({ cluster, reach }) =>
    reach.state === "failing" ? `cluster "${cluster}": ${reach.fault}` : [],
  );
  const has = tokenReviews.filter(({ reach }) => reach.state === "answers").length;
  const hasAnswered = has > 0 || tokenReviews.some(({ reach }) => reach.state === "failing" && reach.hasAnswered);
  const count = `${has} of ${tokenReviews.length} API servers answer`;
  const shown = shownWarnings(all ? firstOf(faults, "fail too") : faults, all);
  return [{ name: "token-reviews", ok: hasAnswered || !readyNeedsTokenReview, detail: [count, ...shown].join("; ") }];
}

/** Agents keep their tunnels whatever is counted: a fault is a warning. */
function replicasCheck(replicas: ReplicaState | undefined, all: boolean): Check[] {
  if (replicas === undefined) return [];
  const { servers, source, fault } = replicas;
  const count = servers === undefined ? "the number is not known yet" : `${servers}`;
  const shown = shownWarnings(fault === undefined ? [] : [fault], all);
  return [{ name: "servers", ok: true, detail: [all ? `${count} (${source})` : count, ...shown].join("; ") }];
}

function shownWarnings(warnings: readonly string[], all: boolean): string[] {
  if (warnings.length === 0) return [];
  return all ? warnings.map((warning) => `warning: ${warning}`) : [countOnly(warnings.length, "warning")];
}

function shownFaults(faults: readonly string[], all: boolean): string {
  if (!all || faults.length === 0) return countOnly(faults.length, "fault");
  return `${faults.length} fault${faults.length === 1 ? "" : "s"}: ${faults.join("; ")}`;
}

function shownListeners(
  all: ServerCondition["listeners"],
  down: ServerCondition["listeners"],
  withProblems: boolean,
): string {
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
