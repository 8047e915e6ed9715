import type { MemoryPool } from "../../shared/limits/memory-pool.ts";
import { CulvertError } from "../../shared/outcomes.ts";
import { type ClusterLimits, ClusterTunnels } from "./cluster-tunnels.ts";
import type { Tunnel } from "./tunnel.ts";

/** The clusters of this server and their tunnels. */
export class Registry {
  readonly #clusters = new Map<string, ClusterTunnels>();
  readonly #pool: MemoryPool | undefined;
  #onChanged: (name: string, cluster: ClusterTunnels | undefined) => void = () => {};

  /** `pool`: the memory that all clusters share. */
  constructor(pool?: MemoryPool) {
    this.#pool = pool;
  }

  add(name: string, limits: ClusterLimits): ClusterTunnels {
    const cluster = new ClusterTunnels(name, limits, this.#pool);
    cluster.onChanged = () => this.#onChanged(name, this.#clusters.get(name));
    this.#clusters.set(name, cluster);
    return cluster;
  }

  /** The caller closes its tunnels. */
  remove(cluster: ClusterTunnels): void {
    if (this.#clusters.get(cluster.name) === cluster) this.#clusters.delete(cluster.name);
    cluster.memory.close();
    cluster.onChanged();
  }

  cluster(name: string): ClusterTunnels {
    const cluster = this.#clusters.get(name);
    if (cluster === undefined) throw new CulvertError("unknown_cluster", `there is no cluster "${name}" here`);
    return cluster;
  }

  /** Sets what is called when tunnels of a cluster have changed or it was removed, and calls it for each cluster. */
  watch(onChanged: (name: string, cluster: ClusterTunnels | undefined) => void): void {
    this.#onChanged = onChanged;
    for (const [name, cluster] of this.#clusters) onChanged(name, cluster);
  }

  clusters(): Iterable<ClusterTunnels> {
    return this.#clusters.values();
  }

  /** Every tunnel of every cluster, also those that drain. */
  *tunnels(): Generator<Tunnel> {
    for (const cluster of this.#clusters.values()) yield* cluster.tunnels();
  }
}
