import { TargetRules } from "../../clusters/access-rules.ts";
import type { Cluster, ClusterSide } from "../../clusters/cluster.ts";

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
