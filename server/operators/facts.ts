import type { ConnectCheck } from "./connect-check.ts";
import type { shownCluster, shownTunnel } from "./shown.ts";
import type { ShownHistory, ShownPhase } from "./traffic-history.ts";

// Facts by their keys, for the page at `/ui/`. The page's code (ui/) imports these types.

/** The state of a cluster, the worst first. */
export const CLUSTER_STATES = [
  "no_agent",
  "link_lost",
  "degraded",
  "unsteady",
  "refused",
  "limited",
  "ok",
  "suspended",
] as const;
export type ClusterState = (typeof CLUSTER_STATES)[number];

/** A line of the list of clusters. */
export interface ClusterFact {
  readonly cluster: string;
  readonly state: ClusterState;
  readonly agents: number;
  /** Agents that have lost their connection, and may come back. */
  readonly suspendedLinks: number;
  /** How often the agents that are connected have lost their connection. */
  readonly losses: number;
  readonly open: number;
  readonly pending: number;
  readonly connectsPerSecond: number;
  readonly bytesPerSecond: number;
  /** CONNECTs that have failed, since the start. */
  readonly failed: number;
  readonly limitHits: number;
  /** When somebody was refused last, or null. */
  readonly refusedAt: string | null;
}

export interface ServerFact {
  readonly serverId: string;
  readonly version: string;
  readonly node: string;
  readonly startedAt: string;
  readonly draining: boolean;
  readonly servers: number | null;
  readonly listeners: Readonly<Record<string, string>>;
}

export interface LoadFact {
  /** The server's clock. */
  readonly at: string;
  readonly memory: Readonly<Record<string, number | boolean>>;
  readonly rssBytes: number;
  readonly heapBytes: number;
  /** The part of the time in which the event loop was busy, and how late it was, since the last message. */
  readonly loopBusy: number;
  readonly loopDelayMs: number;
}

export interface CertificateFact {
  /** Empty: of the flags. */
  readonly cluster: string;
  readonly thing: string;
  readonly by: string;
  readonly consequence: string;
  readonly notBefore: string;
  readonly notAfter: string;
}

type ShownRefusal = ReturnType<typeof shownCluster>["refusals"][number];
export interface RefusalFact extends ShownRefusal {
  /** Empty: the peer came to no cluster. */
  readonly cluster: string;
}

/** Another server of `--admin-peers`, or why there is no answer of it. */
export type OtherServerFact = { readonly address: string } & (
  | { readonly problem: string }
  | {
      readonly serverId: string;
      readonly version: string;
      readonly draining: boolean;
      readonly clusters: number;
      readonly agents: number;
      readonly open: number;
      readonly bytesPerSecond: number;
    }
);

export type AgentFact = ReturnType<typeof shownTunnel>;

/** Of the one cluster that a reader looks at. */
export interface DetailFact extends ReturnType<typeof shownCluster> {
  readonly problems: readonly string[];
  readonly certificates: readonly CertificateFact[];
  readonly history: ShownHistory;
  /** Other servers that have agents of it, as far as they are known (`--admin-peers`). */
  readonly elsewhere: readonly { readonly serverId: string; readonly agents: number }[];
}

/** Facts of a server, and of one cluster. `null` in a message: the fact is gone. */
export interface Facts {
  readonly [cluster: `cluster/${string}`]: ClusterFact;
  readonly [agent: `agent/${string}`]: AgentFact;
  readonly server?: ServerFact;
  readonly load?: LoadFact;
  readonly problems?: readonly string[];
  readonly refusals?: readonly RefusalFact[];
  readonly certificates?: readonly CertificateFact[];
  readonly history?: ShownHistory;
  readonly phases?: readonly ShownPhase[];
  readonly others?: readonly OtherServerFact[];
  readonly detail?: DetailFact;
}

/** A line of the answer to a check: how far it has come, and at last its result. */
export type CheckLine = Pick<ConnectCheck, "steps"> & Partial<ConnectCheck>;
