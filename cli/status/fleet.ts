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
  readonly at: readonly { readonly server: FleetServer; readonly status: ClusterStatus }[];
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
  const servers: FleetServer[] = [];
  for (const answer of answers) {
    if ("problem" in answer) {
      problems.push(answer.problem);
      continue;
    }
    const { address, status } = answer;
    const { serverId } = status;
    const same = servers.find((server) => isSame(server.status, status));
    if (same !== undefined)
      problems.push(`${address} and ${same.address} are both server ${serverId}: it counts once here`);
    else servers.push({ address, status });
  }
  problems.push(...sharedIds(servers));
  const clusters = new Map<string, FleetCluster["at"][number][]>();
  for (const server of servers) {
    for (const cluster of server.status.clusters) {
      if (wanted !== undefined && cluster.cluster !== wanted) continue;
      const at = clusters.get(cluster.cluster) ?? [];
      at.push({ server, status: cluster });
      clusters.set(cluster.cluster, at);
    }
  }
  if (wanted !== undefined && clusters.size === 0) {
    problems.push(`no server that answers has a cluster "${wanted}": culvert status without --cluster shows all`);
  }
  const sorted = [...clusters].sort(([a], [b]) => (a < b ? -1 : 1));
  return { servers, clusters: sorted.map(([name, at]) => ({ name, at })), problems };
}

/** Two addresses of one process. */
function isSame(one: Status, other: Status): boolean {
  return one.serverId === other.serverId && one.instance !== undefined && one.instance === other.instance;
}

/** Agents take servers with one id for one server, and the directory leads to only one of them. */
function sharedIds(servers: readonly FleetServer[]): string[] {
  const counts = new Map<string, number>();
  for (const { status } of servers) counts.set(status.serverId, (counts.get(status.serverId) ?? 0) + 1);
  return [...counts]
    .filter(([, count]) => count > 1)
    .map(([id, count]) => `${count === 2 ? "two" : count} servers share --server-id ${id}: give each its own`);
}
