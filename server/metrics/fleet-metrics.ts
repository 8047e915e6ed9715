import type { OutcomeCode } from "../../shared/outcomes.ts";
import type { Instruments, LabelledMetric, NumberMetric } from "../../shared/runtime/metrics.ts";

/** Connections of agents that pass two servers. */
export interface CarriedConnections {
  readonly toOwners: number;
  readonly fromPeers: number;
}

/** Counters of the traffic between servers. */
export class HopMetrics {
  readonly #opened: LabelledMetric;
  readonly #served: LabelledMetric;
  readonly #refused: NumberMetric;
  readonly #questions: LabelledMetric;
  #directoryIsUp: (() => boolean) | undefined;
  #carried: () => CarriedConnections = () => ({ toOwners: 0, fromPeers: 0 });

  constructor(make: Instruments) {
    this.#opened = make.counters(
      "culvert_server_hops_total",
      "CONNECTs of this server's callers that were asked of another server, by its answer.",
      ["outcome"],
    );
    this.#served = make.counters(
      "culvert_server_hops_served_total",
      "CONNECTs of other servers' callers that this server has carried to its agents.",
      ["outcome"],
    );
    this.#refused = make.counter(
      ["culvert_server_peers_refused_total"],
      "Connections to the peers' port that were refused.",
    );
    this.#questions = make.counters(
      "culvert_server_directory_questions_total",
      "Questions to the directory, by their result: found, none (no server has answered), down (the directory is not reachable).",
      ["result"],
    );
    make.gauges(
      "culvert_server_directory_up",
      "1 while other servers can be asked for by the directory. Absent without --directory.",
      [],
      () => (this.#directoryIsUp === undefined ? [] : [[[], Number(this.#directoryIsUp())]]),
    );
    make.gauges(
      "culvert_server_carried_connections",
      "Open connections of agents that resume a link of another server: carried there, or carried here by that server.",
      ["direction"],
      () => {
        const { toOwners, fromPeers } = this.#carried();
        return [
          [["to_owner"], toOwners],
          [["from_peer"], fromPeers],
        ];
      },
    );
  }

  watch(carried: () => CarriedConnections): void {
    this.#carried = carried;
  }

  watchDirectory(isUp: () => boolean): void {
    this.#directoryIsUp = isUp;
  }

  /** A peer has answered a CONNECT, or could not be asked. */
  opened(outcome: OutcomeCode | "ok"): void {
    this.#opened.add(1, outcome);
  }

  /** A CONNECT of a peer has ended. */
  served(outcome: OutcomeCode | "ok"): void {
    this.#served.add(1, outcome);
  }

  peerRefused(): void {
    this.#refused.add();
  }

  asked(result: "found" | "none" | "down"): void {
    this.#questions.add(1, result);
  }
}

// ── how many servers there are ──────────────────────────────────────────────────────────────────────────────────────

/** How many servers there are, as far as this one knows. */
export interface LiveReplicas {
  /** `undefined`: not known. */
  servers(): number | undefined;
  /** True while they are to be counted and cannot be. */
  failing(): boolean;
}

/** Metrics of the number of servers. */
export class ReplicaMetrics {
  #live: LiveReplicas = { servers: () => undefined, failing: () => false };

  constructor(make: Instruments) {
    make.gauge(
      ["culvert_server_known_servers"],
      "Servers that there are, as this server announces it to agents; 0: not known.",
      () => this.#live.servers() ?? 0,
    );
    make.gauge(
      ["culvert_server_count_failing"],
      "1 while the servers cannot be counted (--server-count-service, --enable-lease-controller), and agents get an old number.",
      () => Number(this.#live.failing()),
    );
  }

  watch(live: LiveReplicas): void {
    this.#live = live;
  }
}
