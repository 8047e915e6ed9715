import type { OutcomeCode } from "../../shared/outcomes.ts";
import type { OutcomeHistogram } from "../../shared/runtime/metrics.ts";
import { DIAL_BUCKETS, type Instruments, type LabelledMetric, NumberMetric } from "../../shared/runtime/metrics.ts";

/** Connections of this node to its control plane. */
export class NodeMetrics {
  readonly #open = new NumberMetric();
  readonly #ended: LabelledMetric;
  readonly #bytes: LabelledMetric;
  readonly #openSeconds: OutcomeHistogram;

  constructor(make: Instruments) {
    make.gauge(
      ["culvert_agent_destination_connections"],
      "Connections to the addresses of --bind-address.",
      () => this.#open.value,
    );
    this.#ended = make.counters(
      "culvert_agent_destination_connections_total",
      "Connections to the addresses of --bind-address that are over; all but those with outcome ok were reset.",
      ["outcome"],
    );
    this.#bytes = make.counters(
      "culvert_agent_destination_bytes_total",
      "Payload of these connections; up is towards the control plane.",
      ["direction"],
    );
    this.#openSeconds = make.histogramByOutcome(
      "culvert_agent_destination_open_duration_seconds",
      "From an accepted connection to the server's answer; outcome is ok where the destination was reached.",
      DIAL_BUCKETS,
    );
  }

  /** A connection was accepted. Each call is followed by one of `finished`. */
  accepted(): void {
    this.#open.add();
  }

  /** The server has answered, or none could be asked. */
  answered(outcome: OutcomeCode | "ok", openMs: number): void {
    this.#openSeconds.observe(openMs / 1_000, outcome);
  }

  finished(outcome: OutcomeCode | "ok", { bytesUp, bytesDown }: { bytesUp: number; bytesDown: number }): void {
    this.#open.subtract();
    this.#ended.add(1, outcome);
    this.#bytes.add(bytesUp, "up");
    this.#bytes.add(bytesDown, "down");
  }
}
