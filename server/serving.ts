import type { TlsDoors } from "../shared/net/tls.ts";
import type { ClusterDoor } from "./cluster-door.ts";
import type { Cluster, ClusterChanges } from "./clusters/cluster.ts";
import type { ServerNames } from "./clusters/names.ts";
import type { ClusterListener } from "./clusters/store.ts";
import { type FlagMaterial, type IdentityRules, ServedCluster } from "./served-cluster.ts";
import type { Registry } from "./tunnels/registry.ts";

/** Which clusters there are: the documents', or the one of the flags. */
export interface ClusterSource {
  readonly clusters: ReadonlyMap<string, Cluster>;
  readonly agentNames: Pick<ServerNames<Cluster>, "find">;
  readonly callerNames: Pick<ServerNames<Cluster>, "find">;
  listen(listener: ClusterListener): void;
}

export interface ServingDeps {
  readonly source: ClusterSource;
  readonly registry: Registry;
  readonly flags: FlagMaterial;
  readonly rules: IdentityRules;
  readonly maxAgents: number;
  readonly serverId: string;
  readonly drainTimeoutMs: number;
  /** It is served from now on. */
  onAdded(served: ServedCluster): void;
  onChanged(served: ServedCluster, what: ClusterChanges): void;
  /** Nobody finds it any more; what it has open is to be drained. */
  onRemoved(served: ServedCluster): void;
}

/** The clusters that are served now, and the doors at which they are found. */
export class Serving implements ClusterListener {
  readonly agentDoors: TlsDoors<ClusterDoor>;
  readonly callerDoors: TlsDoors<ClusterDoor>;
  readonly #deps: ServingDeps;
  readonly #served = new Map<string, ServedCluster>();

  constructor(deps: ServingDeps) {
    this.#deps = deps;
    this.agentDoors = this.#doors("agents", () => deps.source.agentNames);
    this.callerDoors = this.#doors("callers", () => deps.source.callerNames);
  }

  start(): void {
    this.#deps.source.listen(this);
  }

  get(name: string): ServedCluster | undefined {
    return this.#served.get(name);
  }

  all(): Iterable<ServedCluster> {
    return this.#served.values();
  }

  onAdded(cluster: Cluster): void {
    const { registry, flags, rules, serverId, drainTimeoutMs } = this.#deps;
    const maxAgents = cluster.agents.maxAgents ?? this.#deps.maxAgents;
    const tunnels = registry.add(cluster.name, { serverId, maxAgents, drainTimeoutMs });
    const served = new ServedCluster(cluster, tunnels, flags, rules);
    this.#served.set(cluster.name, served);
    this.#deps.onAdded(served);
  }

  onChanged(cluster: Cluster, _before: Cluster, what: ClusterChanges): void {
    const served = this.#served.get(cluster.name);
    if (served === undefined) return;
    if (what.maxAgents) served.tunnels.maxAgents = cluster.agents.maxAgents ?? this.#deps.maxAgents;
    served.update(cluster, what);
    this.#deps.onChanged(served, what);
  }

  onRemoved({ name }: Cluster): void {
    const served = this.#served.get(name);
    if (served === undefined) return;
    this.#served.delete(name);
    this.#deps.registry.remove(served.tunnels);
    this.#deps.onRemoved(served);
  }

  #doors(side: "agents" | "callers", names: () => ClusterSource["agentNames"]): TlsDoors<ClusterDoor> {
    const served = this.#served;
    return {
      get single() {
        if (served.size !== 1) return undefined;
        const [only] = served.values();
        const door = only?.[side];
        return door?.side.sni.length === 0 && door.material !== undefined ? door : undefined;
      },
      find: (serverName) => {
        const cluster = names().find(serverName);
        const door = cluster && served.get(cluster.name)?.[side];
        return door?.material === undefined ? undefined : door;
      },
    };
  }
}
