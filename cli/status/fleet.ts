import { formatTarget, type Target } from "../../shared/address/target.ts";
import { type ClusterStatus, NoStatus, readStatus, type Status } from "./answer.ts";
import { askStatus } from "./ask.ts";

/** What one of several admin ports has answered, or why there is no status of it. */
export type ServerAnswer = { readonly address: string } & (
  | { readonly status: Status /** The whole answer. */; readonly all: object }
  | { readonly problem: string }
);

/** Asks all admin ports at once. Rejects with nothing: what is wrong with one is in its answer. */
export async function askFleet(addresses: readonly Target[], stop?: AbortSignal): Promise<ServerAnswer[]> {
  return await Promise.all(
    addresses.map(async (target): Promise<ServerAnswer> => {
      const address = formatTarget(target);
      try {
        const { kind, all } = await askStatus(target, undefined, stop);
        if (kind === "server") return { address, status: readStatus(all), all };
        return { address, problem: `${address} is of culvert ${kind}: ask it alone` };
      } catch (error) {
        if (!(error instanceof NoStatus)) throw error;
        return { address, problem: error.message };
      }
    }),
  );
}

/** A server that has answered, and the clusters that it serves. */
export interface FleetServer {
  readonly address: string;
  readonly status: Status;
}

/** One cluster at all servers that serve it. */
export interface FleetCluster {
  readonly name: string;
  readonly at: readonly { readonly serverId: string; readonly status: ClusterStatus }[];
}

export interface Fleet {
  readonly servers: readonly FleetServer[];
  readonly clusters: readonly FleetCluster[];
  /** Why some servers are missing here, and what does not fit together. */
  readonly problems: readonly string[];
}

/** Puts the answers together. `wanted`: only this cluster. */
export function fleetOf(answers: readonly ServerAnswer[], wanted?: string): Fleet {
  const problems: string[] = [];
  const servers = new Map<string, FleetServer>();
  for (const answer of answers) {
    if ("problem" in answer) {
      problems.push(answer.problem);
      continue;
    }
    const { address, status } = answer;
    const same = servers.get(status.serverId);
    if (same === undefined) servers.set(status.serverId, { address, status });
    else problems.push(`${address} and ${same.address} are both server ${status.serverId}: it counts once here`);
  }
  const clusters = new Map<string, FleetCluster["at"][number][]>();
  for (const { status } of servers.values()) {
    for (const cluster of status.clusters) {
      if (wanted !== undefined && cluster.cluster !== wanted) continue;
      const at = clusters.get(cluster.cluster) ?? [];
      at.push({ serverId: status.serverId, status: cluster });
      clusters.set(cluster.cluster, at);
    }
  }
  if (wanted !== undefined && clusters.size === 0) {
    problems.push(`no server that answers has a cluster "${wanted}": culvert status without --cluster shows all`);
  }
  const sorted = [...clusters].sort(([a], [b]) => (a < b ? -1 : 1));
  return { servers: [...servers.values()], clusters: sorted.map(([name, at]) => ({ name, at })), problems };
}
