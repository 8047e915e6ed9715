import type { AgentIdentifiers } from "../../shared/address/agent-identifiers.ts";
import { type QueueNode, RecentMap } from "../../shared/basics/collections.ts";
import { SharedInterval } from "../../shared/basics/timers.ts";
import { printable } from "../../shared/outcomes.ts";
import type { Limits } from "../clusters/document.ts";
import { mayChoose, type RoutingRules, type Strategy } from "../clusters/routing-rules.ts";

/** A CONNECT that has ended. */
export interface FinishedConnect {
  readonly outcome: string;
  readonly bytesUp?: number | undefined;
  readonly bytesDown?: number | undefined;
}

/** Rates are means of so many seconds. */
const RATE_S = 10;
const SAMPLE_MS = 1_000;

/**
 * The figures of one cluster for `/status`. The hot path only adds up bytes; rates come from a sample each second.
 */
export class ClusterFigures {
  /** Bytes of both directions, also of open connections. */
  carried = 0;
  /** Bytes of connections that have ended. */
  bytesUp = 0;
  bytesDown = 0;
  connects = 0;
  readonly outcomes = new Map<string, number>();
  /** How often each limit has refused a CONNECT, or slowed bytes down. */
  readonly limitsHit = new Map<keyof Limits, number>();
  readonly refusals = new RecentRefusals();
  readonly #samples: { readonly connects: number; readonly carried: number }[] = [];
  readonly #place: QueueNode<() => void>;

  constructor() {
    this.#place = SharedInterval.every(SAMPLE_MS).add(this.look);
  }

  close(): void {
    this.#place.leave();
  }

  connectionFinished({ outcome, bytesUp = 0, bytesDown = 0 }: FinishedConnect): void {
    this.connects++;
    this.outcomes.set(outcome, (this.outcomes.get(outcome) ?? 0) + 1);
    this.bytesUp += bytesUp;
    this.bytesDown += bytesDown;
  }

  limitHit(limit: keyof Limits): void {
    this.limitsHit.set(limit, (this.limitsHit.get(limit) ?? 0) + 1);
  }

  /** Called each second. */
  readonly look = (): void => {
    this.#samples.push({ connects: this.connects, carried: this.carried });
    if (this.#samples.length > RATE_S + 1) this.#samples.shift();
  };

  /** Means of the last whole seconds. */
  get perSecond(): { readonly connects: number; readonly bytes: number } {
    const [first, last] = [this.#samples[0], this.#samples.at(-1)];
    const seconds = this.#samples.length - 1;
    if (first === undefined || last === undefined || seconds < 1) return { connects: 0, bytes: 0 };
    return {
      connects: Math.round(((last.connects - first.connects) / seconds) * 10) / 10,
      bytes: Math.round((last.carried - first.carried) / seconds),
    };
  }
}

/** A refused peer, in words for an operator. */
export interface RefusedPeer {
  readonly side: "caller" | "agent";
  /** The outcome of a caller; the HTTP status or close code of an agent. */
  readonly code: string;
  /** The name or address of the peer, as far as it is known. */
  readonly from: string;
  readonly target?: string | undefined;
  readonly reason: string;
}

export interface RefusedPeerCount extends RefusedPeer {
  /** When it happened last, and how often so far. */
  readonly at: string;
  readonly times: number;
}

/** So many are kept: they show what is wrong now, and are no log. */
const KEPT = 10;

/** The last different refusals of a cluster: a peer that tries again and again is one of them. */
export class RecentRefusals {
  readonly #last = new RecentMap<string, RefusedPeerCount>(KEPT);

  add({ side, code, from, target, reason }: RefusedPeer, now = new Date()): void {
    const shown = {
      ...{ side, code, from: printable(from, 120), reason: printable(reason) },
      ...(target && { target: printable(target, 120) }),
    };
    const key = JSON.stringify(shown);
    const times = (this.#last.get(key)?.times ?? 0) + 1;
    this.#last.set(key, { ...shown, at: now.toISOString(), times });
  }

  /** The newest first. */
  list(): RefusedPeerCount[] {
    return [...this.#last.values()].reverse();
  }
}

// ── numbers at a scrape ─────────────────────────────────────────────────────────────────────────────────────────────

/** A cluster's CONNECTs, counted in the object of the cluster itself, so that nothing is looked up by name. */
export interface ClusterConnects {
  readonly name: string;
  /** From their arrival to their end. */
  openConnects: number;
  /** Those that were answered with 200. */
  establishedConnects: number;
}

/** The numbers of a tunnel at a scrape. */
export interface LiveTunnel {
  readonly agent: { readonly probe: boolean; readonly identifiers: AgentIdentifiers };
  /** It accepts no callers' streams: it only measures, or is leaving. */
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
  readonly rules: Pick<RoutingRules, "strategies">;
  tunnels(): Iterable<LiveTunnel>;
}

/** Facts about the clusters that are served. */
export interface LiveClusters {
  /** `undefined` for a cluster that is not served any more. */
  readonly figuresOf: (cluster: string) => ClusterFigures | undefined;
  /** Why some clusters are not served as their documents say. */
  readonly faults: () => readonly unknown[];
  /** The states of the API servers that verify tokens. */
  readonly tokenReviews: () => readonly { readonly cluster: string; readonly reach: { readonly state: string } }[];
}

/** The connected agents that each strategy in use may choose, apart from `default`, which may choose all. */
export function agentsByStrategy(clusters: Iterable<LiveCluster>): Map<Strategy, number> {
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
