import { authoritiesOf } from "../clusters/authority.ts";
import type { ClusterRuntime } from "./cluster-runtime.ts";

/**
 * The warning about a cluster whose two CAs are the same, or have signed each other, while a list of identities is missing: then only
 * Konnectivity's names keep an agent's certificate from opening the callers' port (design: "Trust").
 */
export function sharedCaWarning({ cluster, isOfFlags, callers, agents }: ClusterRuntime): string | undefined {
  const missing = [
    ...(callers.identities.length === 0 ? [isOfFlags ? "--caller-identities" : "callers.identities"] : []),
    ...(agents.identities.length === 0 ? [isOfFlags ? "--agent-identities" : "agents.identities"] : []),
  ];
  if (missing.length === 0 || !shareOne(callers.ca, agents.ca)) return undefined;
  const whose = isOfFlags ? "" : ` of cluster "${cluster.name}" (${cluster.file})`;
  return `callers and agents${whose} come from the same CA: give ${missing.join(" and ")}, or a certificate of one role may open the other's port`;
}

function shareOne(one: string | undefined, other: string | undefined): boolean {
  if (one === undefined || other === undefined) return false;
  return authoritiesOf(one).some((authority) => authoritiesOf(other).some((its) => its.meets(authority)));
}
