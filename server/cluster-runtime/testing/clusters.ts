import { TargetRules } from "../../clusters/access-rules.ts";
import type { Cluster, ClusterSide } from "../../clusters/cluster.ts";
import { Destinations } from "../../clusters/destinations.ts";
import type { ServerOptions } from "../../options/options.ts";
import { ClusterTunnels } from "../../tunnels/cluster-tunnels.ts";
import { contextOf } from "../../tunnels/testing/context.ts";
import { ClusterRuntime } from "../cluster-runtime.ts";

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
    destinations: new Destinations([]),
    limits: {},
    suspended: false,
    ...rest,
  };
}

/** A cluster as it is served without certificates in the flags; of a document, unless the test says `isOfFlags`. */
export function runtimeOf(
  cluster: Cluster,
  { isOfFlags = false, ...options }: Partial<ServerOptions> & { readonly isOfFlags?: boolean } = {},
  context = contextOf(options),
): ClusterRuntime {
  const tunnels = new ClusterTunnels(cluster.name, { serverId: "srv", maxAgents: 10, drainTimeoutMs: 100 });
  const setup = { flags: { agents: undefined, callers: undefined }, isOfFlags };
  return new ClusterRuntime(cluster, tunnels, setup, context);
}
