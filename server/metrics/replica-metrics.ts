import type { Instruments } from "../../shared/runtime/metrics.ts";

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
