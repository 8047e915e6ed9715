import { CLUSTER_STATES, type ClusterFact, type ClusterState } from "../server/operators/facts.ts";

// The list of clusters: what is shown of it, and in which order.

/** Columns by which the list can be sorted. */
export type SortColumn =
  | "cluster"
  | "state"
  | "agents"
  | "losses"
  | "open"
  | "bytesPerSecond"
  | "failed"
  | "limitHits"
  | "refusedAt";

export interface ListView {
  readonly search: string;
  /** Empty: all. */
  readonly state: ClusterState | "";
  readonly sort: SortColumn;
  readonly descending: boolean;
}

/** The worst first. */
export const FIRST_VIEW: ListView = { search: "", state: "", sort: "state", descending: false };

export const STATE_WORDS: Readonly<Record<ClusterState, string>> = {
  no_agent: "no agent",
  link_lost: "link lost",
  degraded: "degraded",
  unsteady: "cut often",
  refused: "callers refused",
  limited: "at its limit",
  ok: "ok",
  suspended: "suspended",
};

export function shownClusters(all: readonly ClusterFact[], view: ListView): ClusterFact[] {
  const words = view.search.toLowerCase().split(/\s+/).filter(Boolean);
  const found = all.filter(
    ({ cluster, state }) =>
      (view.state === "" || state === view.state) && words.every((word) => cluster.toLowerCase().includes(word)),
  );
  const sign = view.descending ? -1 : 1;
  return found.sort((a, b) => sign * compare(a, b, view.sort) || (a.cluster < b.cluster ? -1 : 1));
}

function compare(a: ClusterFact, b: ClusterFact, by: SortColumn): number {
  if (by === "state") return CLUSTER_STATES.indexOf(a.state) - CLUSTER_STATES.indexOf(b.state);
  const [one, other] = [a[by] ?? "", b[by] ?? ""];
  if (one === other) return 0;
  return one < other ? -1 : 1;
}

/** How many clusters are in each state; states without one are left out. */
export function stateCounts(all: readonly ClusterFact[]): (readonly [ClusterState, number])[] {
  return CLUSTER_STATES.map((state) => [state, all.filter((one) => one.state === state).length] as const).filter(
    ([, clusters]) => clusters > 0,
  );
}
