import { isDeepStrictEqual } from "node:util";
import type { AgentSide, Cluster, ClusterChanges, ClusterSide, SideChanges } from "./cluster.ts";

/** In what two versions of a cluster differ; `undefined`: in nothing. */
export function changesOf(before: Cluster, now: Cluster): ClusterChanges | undefined {
  const agents = sideChanges(before.agents, now.agents);
  const callers = sideChanges(before.callers, now.callers);
  const own = {
    maxAgents: before.agents.maxAgents !== now.agents.maxAgents,
    uds: before.callers.uds !== now.callers.uds,
    allow: !isDeepStrictEqual(before.targets.allow, now.targets.allow),
    deny: !isDeepStrictEqual(before.targets.deny, now.targets.deny),
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
    crl: before.crl?.pem !== now.crl?.pem,
    trust: ca || !isDeepStrictEqual(trustOf(before), trustOf(now)),
  };
}

function trustOf({ identities, token, sourceCIDRs, ...rest }: ClusterSide | AgentSide): unknown {
  const innerTls = "innerTls" in rest ? rest.innerTls : undefined;
  return { identities: identities.map(({ text }) => text), token, sources: sourceCIDRs?.texts, innerTls };
}

/** The keys at the top of a document under which something differs; never what is there, which may be a secret. */
export function changedKeys({ agents, callers, maxAgents, uds, ...own }: ClusterChanges): string[] {
  const under = {
    agents: maxAgents || Object.values(agents).includes(true),
    callers: uds || Object.values(callers).includes(true),
    ...own,
  };
  return Object.entries(under).flatMap(([key, differs]) => (differs ? key : []));
}
