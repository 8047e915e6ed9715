import type { MemoryPool } from "../limits/memory-pool.ts";
import type { Instruments } from "./metrics.ts";

/** What a process holds for its tunnels and what it may, under the name of its side. */
export class MemoryMetrics {
  #pool: MemoryPool | undefined;

  constructor(make: Instruments, side: "server" | "agent") {
    const name = (rest: string): string => `culvert_${side}_${rest}`;
    const held =
      "Bytes held for connections: not read by slow readers, not acknowledged by the peer, or waiting in sockets.";
    if (side === "agent") make.gauge([name("memory_held_bytes")], held, () => this.#pool?.held ?? 0);
    else make.gaugeByCluster(name("memory_held_bytes"), held, () => this.#heldByCluster());
    make.gauge(
      [name("memory_reserved_bytes")],
      "Window credit beyond initial windows: what the peers of fast streams may send at any time.",
      () => this.#pool?.reserved ?? 0,
    );
    make.gauge([name("memory_limit_bytes")], "The value of --memory-limit.", () => this.#pool?.limit ?? 0);
    make.total(
      name("streams_refused_for_memory_total"),
      "Streams refused because --memory-limit was reached and nothing could be freed.",
      () => this.#pool?.refused ?? 0,
    );
    make.total(
      name("connections_ended_for_memory_total"),
      "Connections ended because memory was short and their readers had stopped.",
      () => this.#pool?.ended ?? 0,
    );
  }

  *#heldByCluster(): Iterable<readonly [cluster: string, value: number]> {
    // A cluster that was removed and has come back has two shares, until what was open before is over.
    const sums = new Map<string, number>();
    for (const { cluster, held } of this.#pool?.shares() ?? []) sums.set(cluster, (sums.get(cluster) ?? 0) + held);
    yield* sums;
  }

  watch(pool: MemoryPool): void {
    this.#pool = pool;
  }
}
