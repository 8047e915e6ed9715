import type { Registry } from "prom-client";
import { DIAL_BUCKETS, Instruments, type LabelledMetric, type NumberMetric } from "../shared/runtime/metrics.ts";

/** Numbers that are read at each scrape. */
interface LiveSidecar {
  readonly connections: () => number;
  readonly sessions: () => number;
}

/** The metrics of a sidecar. No name from the network is a label. */
export class SidecarMetrics {
  readonly registry: Registry;
  readonly #tunnels: LabelledMetric;
  readonly #bytes: LabelledMetric;
  readonly #refused: NumberMetric;
  readonly #serverFailures: NumberMetric;
  readonly #dialSeconds: { observe(value: number): void };

  constructor(live: LiveSidecar, options: { readonly processMetrics?: boolean } = {}) {
    const make = new Instruments(options);
    this.registry = make.registry;
    make.gauge(["culvert_sidecar_connections"], "Connections of clients that are open.", live.connections);
    make.gauge(["culvert_sidecar_sessions"], "HTTP/2 sessions to servers that are open.", live.sessions);
    this.#tunnels = make.counters(
      "culvert_sidecar_dials_total",
      "Targets that were dialled. outcome: ok, or an error type of Proxy-Status (RFC 9209).",
      ["outcome"],
    );
    this.#dialSeconds = make.histogram(
      "culvert_sidecar_dial_duration_seconds",
      "From the request of a client to its open tunnel.",
      DIAL_BUCKETS,
    );
    this.#bytes = make.counters("culvert_sidecar_bytes_total", "Bytes carried; up is towards targets.", ["direction"]);
    this.#refused = make.counter(
      ["culvert_sidecar_clients_refused_total"],
      "Connections of clients that were ended before a dial: not readable, late, without the password, or too many.",
    );
    this.#serverFailures = make.counter(
      ["culvert_sidecar_server_failures_total"],
      "Dials that a server could not serve: it was away, or had no agent.",
    );
  }

  dialled(durationMs: number): void {
    this.#tunnels.add(1, "ok");
    this.#dialSeconds.observe(durationMs / 1_000);
  }

  dialFailed(kind: string): void {
    this.#tunnels.add(1, kind);
  }

  carried(bytesUp: number, bytesDown: number): void {
    if (bytesUp > 0) this.#bytes.add(bytesUp, "up");
    if (bytesDown > 0) this.#bytes.add(bytesDown, "down");
  }

  clientRefused(): void {
    this.#refused.add();
  }

  serverFailed(): void {
    this.#serverFailures.add();
  }
}
