import type { Check } from "../../shared/runtime/check.ts";
import type { Expiring } from "../../shared/tls/expiry.ts";
import type { Clusters } from "../cluster-runtime/clusters.ts";
import type { FlagTls } from "../cluster-runtime/flag-certificates.ts";
import type { ClusterStore } from "../clusters/store.ts";
import type { ReplicaState, ServerCondition } from "./readiness.ts";

type ListenerState = ServerCondition["listeners"][number];

/** The parts of a server that operators see, beside its context. */
export interface ServerView {
  /** The parts that serve clusters: `undefined` in each field before the clusters are read. */
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
  /** The count of servers, if anything counts them. */
  replicas(): Omit<ReplicaState, "servers"> | undefined;
}
