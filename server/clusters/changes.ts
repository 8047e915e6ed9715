import { isDeepStrictEqual } from "node:util";
import type { Cluster, ClusterChanges, ClusterSide, SideChanges } from "./cluster.ts";

/** In what two versions of a cluster differ; `undefined`: in nothing. */
export function changesOf(before: Cluster, now: Cluster): ClusterChanges | undefined {
  const agents = sideChanges(before.agents, now.agents);
  const callers = sideChanges(before.callers, now.callers);
  const own = {
    maxAgents: before.agents.maxAgents !== now.agents.maxAgents,
    uds: before.callers.uds !== now.callers.uds,
    targets: !isDeepStrictEqual(rulesOf(before), rulesOf(now)),
    limits: !isDeepStrictEqual(before.limits, now.limits),
    suspended: before.suspended !== now.suspended,
  };
  const any = [agents, callers, own].some((part) => Object.values(part).includes(true));
  return any ? { agents, callers, ...own } : undefined;
}

function sideChanges(before: ClusterSide, now: ClusterSide): SideChanges {
  const ca = before.ca !== now.ca;
  return {
    names: !isDeepStrictEqual(before.sni, now.sni),
    material: ca || !isDeepStrictEqual(before.certificate, now.certificate),
    trust: ca || !isDeepStrictEqual(trustOf(before), trustOf(now)),
  };
}

function trustOf({ identities, token, sourceCIDRs }: ClusterSide): unknown {
  return { identities: identities.map(({ text }) => text), token, sources: sourceCIDRs?.texts };
}

function rulesOf({ targets: { allow, deny } }: Cluster): unknown {
  return { allow, deny };
}
