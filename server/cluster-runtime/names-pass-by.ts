import type { ClusterRuntime } from "./cluster-runtime.ts";

/** The warning about a cluster that denies addresses, and lets every name through that may resolve to one of them. */
export function namesPassByWarning({ cluster }: ClusterRuntime): string | undefined {
  if (!cluster.targets.namesPassBy) return undefined;
  return `${cluster.file}: cluster "${cluster.name}": deny names addresses and there is no allow, so a name that resolves to one of them passes: the agents resolve it. Add allow, or give the agents --deny-target`;
}
