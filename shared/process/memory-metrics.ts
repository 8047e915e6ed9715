import type { MemoryPool } from "./memory-pool.ts";
import type { Instruments } from "./metrics.ts";

/** What a process holds for its tunnels and what it may, under the name of its side. */
export class MemoryMetrics {
  #pool: MemoryPool | undefined;

  constructor(make: Instruments, side: "server" | "agent") {
    const name = (rest: string): string => `culvert_${side}_${rest}`;
    make.gauge(
      [name("memory_held_bytes")],
      "Bytes held for all tunnels: not read by slow readers, or not acknowledged by the peer.",
      () => this.#pool?.held ?? 0,
    );
    make.gauge(
      [name("memory_reserved_bytes")],
      "Window credit beyond initial windows: what the peers of fast streams may send at any time.",
      () => this.#pool?.reserved ?? 0,
    );
    make.gauge([name("memory_limit_bytes")], "The value of --memory-limit.", () => this.#pool?.limit ?? 0);
    make.total(
      name("streams_refused_for_memory_total"),
      "Streams that a tunnel refused because --memory-limit was reached.",
      () => this.#pool?.refused ?? 0,
    );
  }

  watch(pool: MemoryPool): void {
    this.#pool = pool;
  }
}
