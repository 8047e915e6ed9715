import type { Registry } from "prom-client";
import type { OutcomeCode } from "../../shared/outcomes.ts";
import { ExpiryMetrics, LinkMetrics, MemoryMetrics, TraceMetrics } from "../../shared/runtime/common-metrics.ts";
import {
  DIAL_BUCKETS,
  Instruments,
  type LabelledMetric,
  NumberMetric,
  type OutcomeHistogram,
} from "../../shared/runtime/metrics.ts";

import { NodeMetrics } from "./destination-metrics.ts";

/** The facts of a stream that has ended. */
interface StreamEnd {
  readonly outcome: OutcomeCode | "ok";
  readonly bytesUp?: number | undefined;
  readonly bytesDown?: number | undefined;
}

const STATES = ["waiting", "connecting", "connected", "suspended", "draining", "closed"] as const;
export type UplinkStateName = (typeof STATES)[number];

/** Limits of a path that an agent can learn; docs/corporate-networks.md explains each. */
const LESSONS = ["age_limit", "held_back"] as const;
export type LessonName = (typeof LESSONS)[number];

/** Times that the way to a server has shown, ms; `undefined`: it has not. */
export interface LearnedPath {
  readonly ageLimitMs: number | undefined;
  readonly heldBackMs: number | undefined;
}

/** The facts of one uplink that metrics show. */
export interface LiveUplink {
  readonly server: string;
  readonly state: { readonly state: UplinkStateName };
  readonly path: LearnedPath;
}

/** Numbers of other objects that are read at each scrape. */
export interface LiveAgent {
  /** An uplink for each server that is wanted. */
  readonly uplinks: () => readonly LiveUplink[];
  readonly wanted: () => number;
  /** How many servers there are; `undefined`: no server knows. */
  readonly servers: () => number | undefined;
  /** Targets that are being dialled. */
  readonly pendingDials: () => number;
  /** Bytes held in the windows of the tunnel. */
  readonly bufferedBytes: () => number;
  /** Streams that the sessions standing now have reset for their memory. */
  readonly resetForMemory: () => number;
}

const IDLE: LiveAgent = {
  uplinks: () => [],
  wanted: () => 0,
  servers: () => undefined,
  pendingDials: () => 0,
  bufferedBytes: () => 0,
  resetForMemory: () => 0,
};

/** A suspended uplink has no connection now. */
const CONNECTED: ReadonlySet<UplinkStateName> = new Set(["connected", "draining"]);
/** Learned times of the path to a server: the name of the metric, its help, and the key of the time, ms. */
const PATH_TIMES: readonly (readonly [name: string, help: string, time: keyof LearnedPath])[] = [
  ["age_limit", "Age at which connections to a server are cut; absent while none was seen.", "ageLimitMs"],
  [
    "held_back",
    "Time for which something on the way to a server holds bytes back; absent while nothing does.",
    "heldBackMs",
  ],
];

const KONNECTIVITY = "konnectivity_network_proxy_agent";
// Konnectivity's own buckets (pkg/agent/metrics/metrics.go).
const KONNECTIVITY_DIAL_BUCKETS = [0.005, 0.025, 0.1, 0.5, 2.5, 10, 30];

/** The agent's metrics, with Konnectivity's names as aliases. */
export class AgentMetrics {
  readonly registry: Registry;
  readonly links: LinkMetrics;
  readonly memory: MemoryMetrics;
  readonly expiry: ExpiryMetrics;
  readonly traces: TraceMetrics;
  readonly destinations: NodeMetrics;
  readonly #streams = new NumberMetric();
  readonly #ended: LabelledMetric;
  readonly #bytes: LabelledMetric;
  readonly #attempts: LabelledMetric;
  readonly #connects: NumberMetric;
  readonly #lessons: LabelledMetric;
  readonly #filesUsedUp: NumberMetric;
  readonly #dialFailures: LabelledMetric;
  readonly #dialSeconds: OutcomeHistogram;
  readonly #konnectivityDialSeconds: { observe(value: number): void };
  /** Counts of closed sessions; open sessions are asked. */
  #resetForMemory = 0;
  #live: LiveAgent = IDLE;

  constructor(options: { readonly processMetrics?: boolean } = {}) {
    const make = new Instruments(options);
    this.registry = make.registry;
    this.links = new LinkMetrics(make, "agent");
    this.expiry = new ExpiryMetrics(make);
    this.traces = new TraceMetrics(make, "agent");
    this.memory = new MemoryMetrics(make, "agent");
    this.destinations = new NodeMetrics(make);
    this.#ended = make.counters("culvert_agent_streams_total", "Streams that are over.", ["outcome"]);
    this.#bytes = make.counters("culvert_agent_bytes_total", "Payload carried; up is towards targets.", ["direction"]);
    this.#attempts = make.counters("culvert_agent_uplink_failures_total", "Attempts to reach the server that failed.", [
      "reason",
    ]);
    this.#connects = make.counter(["culvert_agent_uplink_connects_total"], "Tunnels to the server that were set up.");
    this.#lessons = make.counters(
      "culvert_agent_path_lessons_total",
      "Limits that were learned of the network path to a server: it cuts old connections, or holds bytes back.",
      ["lesson"],
    );
    // Prometheus' increase() does not count the step from no series to 1, which would hide each first lesson.
    for (const lesson of LESSONS) this.#lessons.add(0, lesson);
    this.#filesUsedUp = make.counter(
      ["culvert_agent_files_used_up_total"],
      "Times that hardly any file descriptor was left (process_open_fds near process_max_fds).",
    );
    this.#dialFailures = make.counters(
      `${KONNECTIVITY}_endpoint_dial_failure_total`,
      "Targets that were not reached.",
      ["reason"],
    );
    make.gauge(["culvert_agent_streams"], "Streams open.", () => this.#streams.value);
    make.gauge(["culvert_agent_pending_dials"], "Targets being resolved and dialled.", () => this.#live.pendingDials());
    make.gauge([`${KONNECTIVITY}_open_endpoint_connections`], "Connections to targets.", () =>
      Math.max(0, this.#streams.value - this.#live.pendingDials()),
    );
    this.#describeUplinks(make);
    make.gauge(["culvert_agent_buffered_bytes"], "Bytes that wait in the tunnel for a slow reader.", () =>
      this.#live.bufferedBytes(),
    );
    make.total(
      "culvert_agent_streams_reset_for_memory_total",
      "Streams reset because the tunnel held more than --session-budget of unread bytes.",
      () => this.#resetForMemory + this.#live.resetForMemory(),
    );
    this.#dialSeconds = make.histogramByOutcome(
      "culvert_agent_dial_duration_seconds",
      "Resolving and dialling a target; outcome is ok where it was reached.",
      DIAL_BUCKETS,
    );
    this.#konnectivityDialSeconds = make.histogram(
      `${KONNECTIVITY}_dial_duration_seconds`,
      "Resolving and dialling a target that was reached.",
      KONNECTIVITY_DIAL_BUCKETS,
    );
  }

  #describeUplinks(make: Instruments): void {
    make.gauge(
      ["culvert_agent_connected_servers", `${KONNECTIVITY}_open_server_connections`],
      "Servers connected.",
      () => this.#live.uplinks().filter(({ state }) => CONNECTED.has(state.state)).length,
    );
    make.gauge(["culvert_agent_wanted_servers"], "Servers to have a tunnel to.", () => this.#live.wanted());
    make.gauge(
      ["culvert_agent_known_servers", `${KONNECTIVITY}_known_server_count`],
      "Servers that there are, as the connected ones say; those that are wanted where none of them knows.",
      () => this.#live.servers() ?? this.#live.wanted(),
    );
    make.gauges(
      "culvert_agent_uplink_state",
      "Uplinks to a server, or to the servers behind one address, in each state.",
      ["server", "state"],
      () =>
        this.#byServer().flatMap(([server, uplinks]) =>
          STATES.map((name) => [[server, name], uplinks.filter(({ state }) => state.state === name).length] as const),
        ),
    );
    for (const [name, help, time] of PATH_TIMES) {
      make.gauges(`culvert_agent_path_${name}_seconds`, help, ["server"], () =>
        this.#byServer().flatMap(([server, uplinks]) => minimum(server, uplinks, time)),
      );
    }
  }

  /** Several uplinks have one URL if there is more than one server behind it. */
  #byServer(): (readonly [server: string, uplinks: readonly LiveUplink[]])[] {
    const groups = new Map<string, LiveUplink[]>();
    for (const uplink of this.#live.uplinks())
      groups.set(uplink.server, [...(groups.get(uplink.server) ?? []), uplink]);
    return [...groups];
  }

  /** Sets where the live numbers are read; called once, when all parts exist. A number that is left out stays 0. */
  watch(live: Partial<LiveAgent>): void {
    this.#live = { ...IDLE, ...live };
  }

  /** A stream was accepted. One `streamFinished` follows each call. */
  streamOpened(): void {
    this.#streams.add();
  }

  /** A target was reached, or not. */
  dialFinished(outcome: OutcomeCode | "ok", dialMs: number): void {
    this.#dialSeconds.observe(dialMs / 1_000, outcome);
    if (outcome === "ok") this.#konnectivityDialSeconds.observe(dialMs / 1_000);
  }

  streamFinished(end: StreamEnd): void {
    this.#streams.subtract();
    this.#ended.add(1, end.outcome);
    if (end.bytesUp) this.#bytes.add(end.bytesUp, "up");
    if (end.bytesDown) this.#bytes.add(end.bytesDown, "down");
    // Konnectivity knows these two reasons only (pkg/agent/metrics/metrics.go).
    if (end.outcome.startsWith("dial_"))
      this.#dialFailures.add(1, end.outcome === "dial_timeout" ? "timeout" : "unknown");
  }

  uplinkConnected(): void {
    this.#connects.add();
  }

  filesUsedUp(): void {
    this.#filesUsedUp.add();
  }

  /** `resetForMemory`: streams of the session that were reset because it held too much memory. */
  sessionEnded(resetForMemory: number): void {
    this.#resetForMemory += resetForMemory;
  }

  pathLearned(lesson: LessonName): void {
    this.#lessons.add(1, lesson);
  }

  /** `reason` is one of a few words of ours, never a peer's text. */
  attemptFailed(reason: string): void {
    this.#attempts.add(1, reason);
  }
}

/** The least of several uplinks. No sample where no limit is known: 0 would be a limit. */
function minimum(
  server: string,
  uplinks: readonly LiveUplink[],
  time: keyof LearnedPath,
): [labels: readonly string[], value: number][] {
  const known = uplinks.flatMap(({ path }) => path[time] ?? []);
  return known.length === 0 ? [] : [[[server], Math.min(...known) / 1_000]];
}
