import { createLogger } from "../../../shared/runtime/logger.ts";
import { TargetRules } from "../../clusters/access-rules.ts";
import type { Cluster, ClusterSide } from "../../clusters/cluster.ts";
import { ALL_ALIKE } from "../../clusters/routing-rules.ts";
import { ClusterTunnels } from "../../tunnels/cluster-tunnels.ts";
import { ClusterRuntime, type ClusterRuntimeDeps } from "../cluster-runtime.ts";

type Parts = Partial<Omit<Cluster, "name" | "agents" | "callers">> & {
  readonly agents?: Partial<ClusterSide>;
  readonly callers?: Partial<ClusterSide>;
};

/** A cluster as the loader would make it, of which nothing is said but these parts. */
export function clusterOf(name: string, { agents, callers, ...rest }: Parts = {}): Cluster {
  return {
    name,
    file: `${name}.yaml`,
    agents: { sni: [], identities: [], ...agents },
    callers: { sni: [], identities: [], ...callers },
    targets: new TargetRules([], []),
    limits: {},
    suspended: false,
    ...rest,
  };
}

/** A cluster of a document, as it is served without certificates in the flags. */
export function runtimeOf(cluster: Cluster, more: Partial<ClusterRuntimeDeps> = {}): ClusterRuntime {
  const tunnels = new ClusterTunnels(cluster.name, { serverId: "srv", maxAgents: 10, drainTimeoutMs: 100 });
  return new ClusterRuntime(cluster, tunnels, {
    ...{ flags: { agents: undefined, callers: undefined }, isOfFlags: false, innerTls: "never", routing: ALL_ALIKE },
    log: createLogger({ level: "silent", format: "json", name: "server" }),
    ...more,
  });
}
