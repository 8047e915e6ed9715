import { formatTarget, type Target } from "../../shared/address/target.ts";
import { askStatus, type ClusterStatus, NoStatus, readStatus, type Status, type TunnelStatus } from "./ask.ts";
import { AGENT_HEADING, agentRow, ago, columns, count, FIGURES, figureCells, problemLine, size } from "./table.ts";

/** The answer of one of several admin ports, or the reason why there is none. */
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
interface FleetServer {
  readonly address: string;
  readonly status: Status;
}

/** One cluster at all servers that serve it. */
interface FleetCluster {
  readonly name: string;
  readonly at: readonly { readonly server: FleetServer; readonly status: ClusterStatus }[];
}

interface Fleet {
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

/** Agents take servers with one id for one server, and the directory finds only one of them. */
function sharedIds(servers: readonly FleetServer[]): string[] {
  const counts = new Map<string, number>();
  for (const { status } of servers) counts.set(status.serverId, (counts.get(status.serverId) ?? 0) + 1);
  return [...counts]
    .filter(([, count]) => count > 1)
    .map(([id, count]) => `${count === 2 ? "two" : count} servers share --server-id ${id}: give each its own`);
}

// ── the table ────────────────────────────────────────────────────────────────────────────────────────────────────────

const SERVER_HEADING = ["SERVER", "ADDRESS", "STATE", "SERVERS", "CLUSTERS", "AGENTS", "HELD"];
/** As for one server, with the servers that hold the cluster, and without limits, which are of each server. */
const FLEET_HEADING = ["CLUSTER", "STATE", "HELD-BY", "AGENTS", ...FIGURES];
/** Names of servers in one cell; agents with a tunnel to each server hold no more. */
const MAX_NAMES = 5;

/**
 * Formats the status of several servers: the servers, and which of them hold which clusters. `agents`: also their
 * agents, each with the server that holds it.
 */
export function fleetTable(answers: readonly ServerAnswer[], fleet: Fleet, agents: boolean, now = new Date()): string {
  const { clusters, problems } = fleet;
  const blocks = [
    [
      ...columns([SERVER_HEADING, ...serverRows(answers, fleet.servers)]),
      ...[...problems, ...problemsOf(fleet.servers)].map(problemLine),
    ],
    clusters.length === 0 ? ["no clusters"] : columns([FLEET_HEADING, ...clusters.map(fleetRow)]),
    ...(agents ? [agentsBlock(clusters, now)] : []),
    ...refusalsBlock(fleet, !agents, now),
  ];
  return `${blocks.map((lines) => lines.join("\n")).join("\n\n")}\n`;
}

function serverRows(answers: readonly ServerAnswer[], servers: readonly FleetServer[]): string[][] {
  return answers.flatMap((answer) => {
    if ("problem" in answer) return [["-", answer.address, "no status", "-", "-", "-", "-"]];
    const { address, status } = answer;
    if (!servers.some((server) => server.status === status)) return []; // the same server again
    const { serverId, draining, servers: known, clusters, memory } = status;
    const held = clusters.filter(({ tunnels }) => tunnels.some(isServing));
    const agents = clusters.flatMap(({ tunnels }) => tunnels.filter(isServing));
    return [
      [
        serverId,
        address,
        draining ? "draining" : "open",
        known === null ? "-" : count(known),
        `${count(held.length)} of ${count(clusters.length)}`,
        count(agents.length),
        `${size(memory.heldBytes)} of ${size(memory.limitBytes)}`,
      ],
    ];
  });
}

/** Problems that servers report, and a number of servers that differs from the number that is shown. */
function problemsOf(servers: readonly FleetServer[]): string[] {
  const own = servers.flatMap(({ status }) => status.problems.map((problem) => `${status.serverId}: ${problem}`));
  return [...own, ...unknownNumber(servers), ...smallNumbers(servers), ...missingServers(servers)];
}

function missingServers(servers: readonly FleetServer[]): string[] {
  const most = Math.max(0, ...servers.map(({ status }) => status.servers ?? 0));
  const shown = servers.length;
  if (most <= shown) return [];
  return [`there are ${most} servers, as one of them says, and ${shown} ${shown === 1 ? "is" : "are"} shown`];
}

/** With a directory a caller reaches agents of the other servers, and nobody has to know the number. */
function unknownNumber(servers: readonly FleetServer[]): string[] {
  const isKnown = servers.some(({ status }) => status.servers !== null || status.listeners["peers"] !== undefined);
  if (isKnown || servers.length < 2) return [];
  return [
    `none of ${servers.length} servers knows how many there are: behind one address agents that dial one address for all need --server-count, or --uplinks of their own`,
  ];
}

/** A server that drains need not be counted. */
function smallNumbers(servers: readonly FleetServer[]): string[] {
  const serving = servers.filter(({ status }) => !status.draining).length;
  const tooFew = servers.filter(({ status }) => status.servers !== null && status.servers < serving);
  return tooFew.map(({ status: { serverId, servers: known } }) => {
    const are = known === 1 ? "there is 1 server" : `there are ${known} servers`;
    return `${serverId} says that ${are}, and ${serving} are shown: agents may look for too few (--server-count)`;
  });
}

function fleetRow({ name, at }: FleetCluster): string[] {
  const states = new Set(at.map(({ status }) => (status.suspended ? "suspended" : "open")));
  const serving = at.map(({ server, status }) => ({
    serverId: server.status.serverId,
    tunnels: status.tunnels.filter(isServing),
  }));
  // An agent with a tunnel to each of three servers is one agent.
  const agents = new Set(
    serving.flatMap(({ tunnels }) => tunnels.map(({ identity, agent }) => `${identity}\n${agent}`)),
  );
  const holders = serving.filter(({ tunnels }) => tunnels.length > 0);
  return [
    name,
    [...states].join(", "),
    heldBy(holders.map(({ serverId }) => serverId)),
    count(agents.size),
    ...figureCells(at.map(({ status }) => status)),
  ];
}

function heldBy(names: readonly string[]): string {
  if (names.length === 0) return "-";
  const more = names.length - MAX_NAMES;
  return more > 0 ? `${names.slice(0, MAX_NAMES).join(", ")} and ${more} more` : names.join(", ");
}

/** Takes a CONNECT now. */
function isServing({ probe, draining, suspended }: TunnelStatus): boolean {
  return !probe && !draining && !suspended;
}

function agentsBlock(clusters: readonly FleetCluster[], now: Date): string[] {
  const rows = clusters.flatMap(({ name, at }) =>
    at.flatMap(({ server, status }) =>
      status.tunnels.map((tunnel) => [name, server.status.serverId, ...agentRow(tunnel, now)]),
    ),
  );
  const [cluster = "", ...others] = AGENT_HEADING;
  return rows.length === 0 ? ["no agent is connected"] : columns([[cluster, "SERVER", ...others], ...rows]);
}

/** The newest refusal at each server, of all its clusters or of the one that is shown. */
function refusalsBlock({ servers, clusters }: Fleet, withOwn: boolean, now: Date): string[][] {
  const rows = servers.flatMap((server) => {
    const here = clusters.flatMap(({ at }) => at.filter((one) => one.server === server));
    const all = [...(withOwn ? server.status.refusals : []), ...here.flatMap(({ status }) => status.refusals)];
    const [newest] = all.sort((a, b) => b.at.localeCompare(a.at));
    if (newest === undefined) return [];
    const times = all.reduce((sum, refusal) => sum + refusal.times, 0);
    return [[server.status.serverId, count(times), ago(newest.at, now), newest.side, newest.code, newest.reason]];
  });
  if (rows.length === 0) return [];
  const heading = ["REFUSED-AT", "TIMES", "NEWEST", "SIDE", "CODE", "REASON"];
  const hint =
    "culvert status --admin-address ADDRESS, with the address of one server, lists all that it has refused lately";
  return [[...columns([heading, ...rows]), hint]];
}
