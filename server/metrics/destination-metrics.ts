import type { OutcomeCode } from "../../shared/outcomes.ts";
import { DIAL_BUCKETS, type Instruments, LabelledMetric, type OutcomeHistogram } from "../../shared/runtime/metrics.ts";

/** A connection of an agent to a destination, at its end. */
export interface DestinationEnd {
  readonly outcome: OutcomeCode | "ok";
  readonly bytesUp?: number;
  readonly bytesDown?: number;
}

/** Counters of the streams that agents open to destinations of the control plane. */
export class DestinationMetrics {
  readonly #ended: LabelledMetric;
  readonly #bytes: LabelledMetric;
  readonly #open = new LabelledMetric(1);
  readonly #dialSeconds: OutcomeHistogram;

  constructor(make: Instruments) {
    this.#ended = make.counters(
      "culvert_server_destination_connections_total",
      "Connections of agents to destinations that are over; outcome is forbidden where one is not allowed.",
      ["cluster", "outcome"],
    );
    this.#bytes = make.counters(
      "culvert_server_destination_bytes_total",
      "Payload of agents' connections to destinations; up is towards the destinations.",
      ["cluster", "direction"],
    );
    make.gaugeByCluster("culvert_server_destination_connections", "Connections of agents to destinations.", () =>
      [...this.#open].map(([[cluster = ""], value]) => [cluster, value] as const),
    );
    this.#dialSeconds = make.histogramByOutcome(
      "culvert_server_destination_dial_duration_seconds",
      "Resolving and dialling a destination; outcome is ok where it was reached.",
      DIAL_BUCKETS,
    );
  }

  /** An agent asks for a destination. Each call is followed by one of `finished`. */
  opened(cluster: string): void {
    this.#open.add(1, cluster);
  }

  dialled(outcome: OutcomeCode | "ok", dialMs: number): void {
    this.#dialSeconds.observe(dialMs / 1_000, outcome);
  }

  finished(cluster: string, { outcome, bytesUp, bytesDown }: DestinationEnd): void {
    this.#open.add(-1, cluster);
    this.#ended.add(1, cluster, outcome);
    if (bytesUp) this.#bytes.add(bytesUp, cluster, "up");
    if (bytesDown) this.#bytes.add(bytesDown, cluster, "down");
  }

  forget(cluster: string): void {
    for (const metric of [this.#ended, this.#bytes, this.#open]) metric.forget(cluster);
  }
}
