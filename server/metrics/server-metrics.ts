import type { Registry } from "prom-client";
import { type OutcomeCode, outcome } from "../../shared/outcomes.ts";
import { ExpiryMetrics, LinkMetrics, MemoryMetrics, TraceMetrics } from "../../shared/runtime/common-metrics.ts";
import {
  DIAL_BUCKETS,
  Instruments,
  type LabelledMetric,
  LIFE_BUCKETS,
  type NumberMetric,
  type ObservedSeries,
  type OutcomeHistogram,
  type SeriesTotal,
} from "../../shared/runtime/metrics.ts";
import { type FinishedConnect, type LiveClusters, RecentRefusals, type RefusedPeer } from "./cluster-figures.ts";
import { DestinationMetrics } from "./destination-metrics.ts";
import { HopMetrics, ReplicaMetrics } from "./fleet-metrics.ts";
import { type ClusterConnects, KONNECTIVITY, LiveMetrics } from "./live-metrics.ts";

/** The facts about a CONNECT at its end. */
export interface ConnectionEnd extends FinishedConnect {
  readonly outcome: OutcomeCode | "ok";
  readonly cluster: ClusterConnects;
  /** Whether it was answered with 200; absent: if its outcome is ok. */
  readonly established?: boolean | undefined;
  readonly durationMs: number;
  /** Present if it was refused. */
  readonly refusal?: Omit<RefusedPeer, "side" | "code"> | undefined;
}

/** The parts of a CONNECT until its 200; `resolve` and `dial` are the agent's, as it says. */
const PHASES = ["authenticate", "pick", "open", "resolve", "dial"] as const;
/** The sum of one part's times, seconds, and in how many CONNECTs it was needed. */
export interface PhaseTotal extends SeriesTotal {
  readonly phase: (typeof PHASES)[number];
}
/** How long each part took, ms; absent: it was not needed, or the agent does not say. */
export type ConnectPhases = Readonly<Partial<Record<(typeof PHASES)[number], number | undefined>>>;

/** An agent that got no tunnel. */
export interface AgentRefusal extends Omit<RefusedPeer, "side" | "code" | "target"> {
  /** Empty: it came to no cluster. */
  readonly cluster: string;
}

/** The listeners for callers and agents. */
export type ListenerName = "unix" | "callers" | "http" | "agents" | "agents-insecure" | "peers";

// Konnectivity's buckets, so that its dashboards keep their shape (pkg/server/metrics/metrics.go).
const KONNECTIVITY_DIAL_BUCKETS = [0.000001, 0.00001, 0.0001, 0.005, 0.025, 0.1, 0.5, 2.5, 12.5];
const KONNECTIVITY_LIFE_BUCKETS = [1, 5, 15, 30, 60, 300, 900, 1_800, 3_600, 14_400, 43_200, 86_400];

/** The server's metrics, with Konnectivity's names as aliases. */
export class ServerMetrics {
  readonly registry: Registry;
  /** Without the metrics that name clusters or routes. */
  readonly withoutNames: Registry;
  readonly links: LinkMetrics;
  /** Current numbers of CONNECTs, tunnels and streams. */
  readonly live: LiveMetrics;
  readonly hops: HopMetrics;
  readonly destinations: DestinationMetrics;
  readonly memory: MemoryMetrics;
  readonly expiry: ExpiryMetrics;
  readonly traces: TraceMetrics;
  readonly replicas: ReplicaMetrics;
  /** Lines of the audit trail that are lost. */
  readonly auditLost: NumberMetric;
  /** Refused peers that came to no cluster. */
  readonly refusals = new RecentRefusals();
  readonly #tunnels: LabelledMetric;
  readonly #tunnelsClosed: LabelledMetric;
  readonly #connections: LabelledMetric;
  readonly #bytes: LabelledMetric;
  readonly #dialFailures: LabelledMetric;
  readonly #refusals: LabelledMetric;
  readonly #withdrawn: LabelledMetric;
  readonly #handshakes: LabelledMetric;
  readonly #untrusted: LabelledMetric;
  readonly #waitingDropped: LabelledMetric;
  readonly #http2Ended: LabelledMetric;
  readonly #filesUsedUp: NumberMetric;
  readonly #dialSeconds: OutcomeHistogram;
  readonly #phaseSeconds: Readonly<Record<(typeof PHASES)[number], ObservedSeries>>;
  readonly #konnectivityDialSeconds: { observe(value: number): void };
  readonly #lifeSeconds: readonly { observe(value: number): void }[];
  #clusters: LiveClusters = { figuresOf: () => undefined, faults: () => [], tokenReviews: () => [] };

  constructor(options: { readonly processMetrics?: boolean } = {}) {
    const make = new Instruments(options);
    this.registry = make.registry;
    this.withoutNames = make.withoutNames;
    this.links = new LinkMetrics(make, "server");
    this.live = new LiveMetrics(make, this.links);
    this.hops = new HopMetrics(make);
    this.destinations = new DestinationMetrics(make);
    this.expiry = new ExpiryMetrics(make);
    this.traces = new TraceMetrics(make, "server");
    this.replicas = new ReplicaMetrics(make);
    this.memory = new MemoryMetrics(make, "server");
    this.#connections = make.counters(
      "culvert_server_connections_total",
      "CONNECTs that are over. An empty cluster: one to --http-port that came to none.",
      ["cluster", "outcome"],
    );
    this.#bytes = make.counters("culvert_server_bytes_total", "Payload carried; up is towards targets.", [
      "cluster",
      "direction",
    ]);
    this.#tunnelsClosed = make.counters("culvert_server_tunnels_closed_total", "Tunnels that ended.", [
      "cluster",
      "reason",
    ]);
    this.#tunnels = make.counters("culvert_server_tunnels_opened_total", "Tunnels that agents opened.", ["cluster"]);
    this.#withdrawn = make.counters(
      "culvert_server_connections_withdrawn_total",
      "Open connections reset because their caller would not be let in any more: other CAs, identities, tokens or networks, or a revoked certificate.",
      ["cluster"],
    );
    this.#refusals = make.counters("culvert_server_agents_refused_total", "Agents that got no tunnel.", [
      "cluster",
      "code",
    ]);
    this.#handshakes = make.counters(
      "culvert_server_handshakes_failed_total",
      "Connections that failed before or during their TLS handshake; on the insecure port, before their request.",
      ["listener"],
    );
    this.#untrusted = make.counters(
      "culvert_server_untrusted_connections_total",
      "Connections closed because their address is not among --agent-insecure-trusted-cidrs.",
      ["listener"],
    );
    this.#waitingDropped = make.counters(
      "culvert_server_waiting_connections_dropped_total",
      "Connections dropped because too many had not asked for anything.",
      ["listener"],
    );
    this.#http2Ended = make.counters(
      "culvert_server_http2_connections_ended_total",
      "HTTP/2 connections ended for what their peer did; reason: flood (frames, resets or headers without use), or protocol (not HTTP/2 as RFC 9113 has it).",
      ["listener", "reason"],
    );
    this.#filesUsedUp = make.counter(
      ["culvert_server_files_used_up_total"],
      "Times that hardly any file descriptor was left (process_open_fds near process_max_fds).",
    );
    this.auditLost = make.counter(
      ["culvert_server_audit_lines_lost_total"],
      "Lines of --audit-log that are lost, because it could not be written for long, or nobody has read it.",
    );
    this.#dialFailures = make.counters(`${KONNECTIVITY}_dial_failure_count`, "CONNECTs not answered with 200.", [
      "reason",
    ]);
    make.gauge(
      ["culvert_server_cluster_faults"],
      "Faults of --clusters: what is not in use as the files say now, and certificates that clients refuse for their dates.",
      () => this.#clusters.faults().length,
    );
    make.gaugeByCluster(
      "culvert_server_token_review_failing",
      "1 while the API server that verifies a cluster's tokens cannot be asked; absent where none is.",
      () =>
        this.#clusters
          .tokenReviews()
          .map(({ cluster, reach }) => [cluster, reach.state === "failing" ? 1 : 0] as const),
    );
    this.#dialSeconds = make.histogramByOutcome(
      "culvert_server_dial_duration_seconds",
      "From a CONNECT's arrival to its answer; outcome is ok where that was 200.",
      DIAL_BUCKETS,
    );
    this.#phaseSeconds = make.histograms(
      "culvert_server_connect_duration_seconds",
      "Parts of the time until a 200: authenticate, pick (or wait for) an agent, open a stream, and the agent's resolve and dial. For agents without these, open includes them.",
      DIAL_BUCKETS,
      "phase",
      PHASES,
    );
    this.#konnectivityDialSeconds = make.histogram(
      `${KONNECTIVITY}_dial_duration_seconds`,
      "From a CONNECT's arrival to its 200.",
      KONNECTIVITY_DIAL_BUCKETS,
    );
    this.#lifeSeconds = [
      make.histogram("culvert_server_connection_duration_seconds", "Life of established connections.", LIFE_BUCKETS),
      make.histogram(
        `${KONNECTIVITY}_connection_duration_seconds`,
        "Life of established connections.",
        KONNECTIVITY_LIFE_BUCKETS,
      ),
    ];
  }

  /** Sets the source of the facts about clusters; called once. */
  watchClusters(clusters: LiveClusters): void {
    this.#clusters = clusters;
  }

  /** A CONNECT has come. Each call is followed by one of `connectionFinished`. */
  connectionOpened(cluster: ClusterConnects): void {
    this.live.connects.add();
    cluster.openConnects++;
  }

  /** A CONNECT was answered with 200. */
  connectionEstablished(cluster: ClusterConnects, dialMs: number, phases: ConnectPhases = {}): void {
    this.live.established.add();
    cluster.establishedConnects++;
    this.#dialSeconds.observe(dialMs / 1_000, "ok");
    this.#konnectivityDialSeconds.observe(dialMs / 1_000);
    for (const phase of PHASES) {
      const ms = phases[phase];
      if (ms !== undefined) this.#phaseSeconds[phase].observe(ms / 1_000);
    }
  }

  /** The time of each part of all CONNECTs so far. */
  phaseTotals(): readonly PhaseTotal[] {
    return PHASES.map((phase) => ({ phase, ...this.#phaseSeconds[phase].total }));
  }

  connectionFinished(end: ConnectionEnd): void {
    const established = end.established ?? end.outcome === "ok";
    const { cluster } = end;
    this.live.connects.subtract();
    cluster.openConnects--;
    this.#connections.add(1, cluster.name, end.outcome);
    if (end.bytesUp) this.#bytes.add(end.bytesUp, cluster.name, "up");
    if (end.bytesDown) this.#bytes.add(end.bytesDown, cluster.name, "down");
    if (established) {
      this.live.established.subtract();
      cluster.establishedConnects--;
      for (const histogram of this.#lifeSeconds) histogram.observe(end.durationMs / 1_000);
    } else if (end.outcome !== "ok") {
      this.#dialFailures.add(1, outcome(end.outcome).konnectivity);
      this.#dialSeconds.observe(end.durationMs / 1_000, end.outcome);
    }
    this.#clusters.figuresOf(cluster.name)?.connectionFinished(end);
    if (end.refusal !== undefined) this.#refused(cluster.name, { side: "caller", code: end.outcome, ...end.refusal });
  }

  /** A CONNECT was refused before it came to a cluster. */
  callerOfNoCluster(refusal: Omit<RefusedPeer, "side" | "code"> & { readonly code: OutcomeCode }): void {
    const { code } = refusal;
    this.#connections.add(1, "", code);
    this.#dialFailures.add(1, outcome(code).konnectivity);
    this.#refused("", { side: "caller", ...refusal });
  }

  #refused(cluster: string, refusal: RefusedPeer): void {
    (this.#clusters.figuresOf(cluster)?.refusals ?? this.refusals).add(refusal);
  }

  /** A connection was reset because its caller's credential is not accepted any more. */
  connectionWithdrawn(cluster: string): void {
    this.#withdrawn.add(1, cluster);
  }

  /** +1 when a CONNECT begins to wait for an agent, −1 when it ends to wait. */
  pendingOpens(delta: number): void {
    if (delta > 0) this.live.pending.add(delta);
    else this.live.pending.subtract(-delta);
  }

  tunnelOpened(cluster: string): void {
    this.live.tunnels.add();
    this.#tunnels.add(1, cluster);
  }

  /** `reason` is a word of ours, never a peer's text. The tunnel is not one of the live ones any more. */
  tunnelClosed(cluster: string, reason: string, resetForMemory = 0): void {
    this.live.resetForMemory += resetForMemory;
    this.live.tunnels.subtract();
    this.#tunnelsClosed.add(1, cluster, reason);
  }

  /** Removes the series of a cluster that is not configured any more. */
  forgetCluster(cluster: string): void {
    const tallies = [
      this.#connections,
      this.#bytes,
      this.#tunnels,
      this.#tunnelsClosed,
      this.#refusals,
      this.#withdrawn,
    ];
    for (const tally of tallies) tally.forget(cluster);
    this.destinations.forget(cluster);
  }

  /** `code` is an HTTP status, a close code or a word of ours. Without `refusal` the peer is unknown. */
  agentRefused(code: string, refusal?: AgentRefusal): void {
    this.#refusals.add(1, refusal?.cluster ?? "", code);
    if (refusal === undefined) return;
    const { cluster, ...peer } = refusal;
    this.#refused(cluster, { side: "agent", code, ...peer });
  }

  handshakeFailed(listener: ListenerName): void {
    this.#handshakes.add(1, listener);
  }

  untrusted(listener: ListenerName): void {
    this.#untrusted.add(1, listener);
  }

  waitingDropped(listener: ListenerName): void {
    this.#waitingDropped.add(1, listener);
  }

  /** `reason`: `flood` or `protocol`. */
  http2Ended(listener: ListenerName, reason: string): void {
    this.#http2Ended.add(1, listener, reason);
  }

  filesUsedUp(): void {
    this.#filesUsedUp.add();
  }
}
