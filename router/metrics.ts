import type { Registry } from "prom-client";
import {
  DIAL_BUCKETS,
  Instruments,
  type LabelledMetric,
  LIFE_BUCKETS,
  type NumberMetric,
} from "../shared/runtime/metrics.ts";
import type { BackendState } from "./backends.ts";
import type { RefusedReason } from "./client-connections.ts";

/** Numbers that are read at each scrape. */
interface LiveRouter {
  readonly connections: () => number;
  readonly hellos: () => number;
  readonly routes: () => number;
  readonly faults: () => number;
  readonly backends: () => Readonly<Record<BackendState, number>>;
}

/** A forwarded connection that has ended. */
interface ForwardedEnd {
  readonly route: string;
  readonly bytesUp: number;
  readonly bytesDown: number;
  readonly durationMs: number;
}

/** The metrics of the router. Routes are labels; names from the network never are. */
export class RouterMetrics {
  readonly registry: Registry;
  /** The registry without the metrics that name routes. */
  readonly withoutNames: Registry;
  readonly #forwarded: LabelledMetric;
  readonly #refused: LabelledMetric;
  readonly #bytes: LabelledMetric;
  readonly #dialFailures: LabelledMetric;
  readonly #reads: LabelledMetric;
  readonly #acceptErrors: NumberMetric;
  readonly #filesUsedUp: NumberMetric;
  readonly #dialSeconds: { observe(value: number): void };
  readonly #lifeSeconds: { observe(value: number): void };

  constructor(live: LiveRouter, options: { readonly processMetrics?: boolean } = {}) {
    const make = new Instruments(options);
    this.registry = make.registry;
    this.withoutNames = make.withoutNames;
    this.#forwarded = make.counters("culvert_router_connections_total", "Connections passed on to a backend.", [
      "route",
    ]);
    this.#refused = make.counters("culvert_router_connections_refused_total", "Connections that were not passed on.", [
      "reason",
    ]);
    this.#bytes = make.counters("culvert_router_bytes_total", "Bytes carried; up is towards backends.", [
      "route",
      "direction",
    ]);
    this.#dialFailures = make.counters("culvert_router_dial_failures_total", "Backends that were not reached.", [
      "route",
    ]);
    this.#reads = make.counters(
      "culvert_router_route_reads_total",
      "Times that changed routes were read. result: ok, or faults (what was read before stays).",
      ["result"],
    );
    this.#acceptErrors = make.counter(["culvert_router_listener_errors_total"], "Errors of the listener.");
    this.#filesUsedUp = make.counter(
      ["culvert_router_files_used_up_total"],
      "Times that hardly any file descriptor was left (process_open_fds near process_max_fds).",
    );
    make.gauge(["culvert_router_connections"], "Connections open.", live.connections);
    make.gauge(["culvert_router_hellos"], "Connections whose ClientHello has not come to its end.", live.hellos);
    make.gauge(["culvert_router_routes"], "Routes in use.", live.routes);
    make.gauge(["culvert_router_route_faults"], "Faults of routes that are not in use as they are now.", live.faults);
    make.gauges(
      "culvert_router_backends",
      "Backends of all routes: healthy (the last dial reached it), avoided (it did not), untried.",
      ["state"],
      () => Object.entries(live.backends()).map(([state, count]) => [[state], count] as const),
    );
    this.#dialSeconds = make.histogram("culvert_router_dial_duration_seconds", "Dialling a backend.", DIAL_BUCKETS);
    this.#lifeSeconds = make.histogram(
      "culvert_router_connection_duration_seconds",
      "Life of connections that were passed on.",
      LIFE_BUCKETS,
    );
  }

  refused(code: RefusedReason): void {
    this.#refused.add(1, code);
  }

  backendReached(route: string, dialMs: number): void {
    this.#forwarded.add(1, route);
    this.#dialSeconds.observe(dialMs / 1_000);
  }

  backendFailed(route: string): void {
    this.#dialFailures.add(1, route);
  }

  connectionFinished({ route, bytesUp, bytesDown, durationMs }: ForwardedEnd): void {
    if (bytesUp > 0) this.#bytes.add(bytesUp, route, "up");
    if (bytesDown > 0) this.#bytes.add(bytesDown, route, "down");
    this.#lifeSeconds.observe(durationMs / 1_000);
  }

  routesRead(withFaults: boolean): void {
    this.#reads.add(1, withFaults ? "faults" : "ok");
  }

  listenerFailed(): void {
    this.#acceptErrors.add();
  }

  filesUsedUp(): void {
    this.#filesUsedUp.add();
  }
}
