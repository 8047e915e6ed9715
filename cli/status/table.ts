import { withoutMapping } from "../../shared/address/network.ts";
import { printable } from "../../shared/outcomes.ts";
import type {
  AgentStatus,
  ClusterStatus,
  PaceStatus,
  RefusalStatus,
  RouterStatus,
  Status,
  TunnelStatus,
} from "./ask.ts";

/** A CONNECT is counted as WAITING, then OPEN, then as ended. `culvert status --help` explains the columns. */
export const FIGURES = ["WAITING", "OPEN", "ENDED-OK", "ENDED-BADLY", "ENDED/S", "BYTES", "BYTES/S"];
export const CLUSTER_HEADING = ["CLUSTER", "STATE", "AGENTS", ...FIGURES, "LIMITS-HIT"];

/** The newest refusals of all clusters that are shown; `--json` has them all. */
const SHOWN_REFUSALS = 20;

/** Formats the status of a server. */
export function statusTable(status: Status, now = new Date()): string {
  const { serverId, draining, memory, problems, clusters } = status;
  const held = `tunnels hold ${size(memory.heldBytes)} of ${size(memory.limitBytes)}`;
  const blocks = [
    [`server ${printable(serverId)}${draining ? ", draining" : ""}: ${held}`, ...problems.map(problemLine)],
    clusters.length === 0 ? ["no clusters"] : columns([CLUSTER_HEADING, ...clusters.map(clusterRow)]),
    agentsBlock(clusters, now),
    refusalsBlock(status, now),
  ];
  return `${blocks.map((lines) => lines.join("\n")).join("\n\n")}\n`;
}

/** The cells of a cluster under `CLUSTER_HEADING`. */
function clusterRow(status: ClusterStatus): string[] {
  const { cluster, suspended, limits, tunnels } = status;
  const agents = agentsCell(tunnels.filter(({ probe }) => !probe));
  return [cluster, suspended ? "suspended" : "open", agents, ...figureCells([status]), limitsCell(limits)];
}

/** The cells under `FIGURES`, of a cluster at all servers together. */
export function figureCells(at: readonly ClusterStatus[]): string[] {
  const sum = (figure: (status: ClusterStatus) => number) => at.reduce((total, status) => total + figure(status), 0);
  const ok = sum(({ connects }) => connects.outcomes["ok"] ?? 0);
  const open = at.flatMap(({ tunnels }) => tunnels.map(({ probe, streams }) => (probe ? 0 : streams)));
  return [
    count(sum(({ pendingConnects }) => pendingConnects)),
    count(open.reduce((total, streams) => total + streams, 0)),
    count(ok),
    count(sum(({ connects }) => connects.total) - ok),
    String(Math.round(sum(({ connects }) => connects.perSecond) * 10) / 10),
    size(sum(({ bytes }) => bytes.carried)),
    size(sum(({ bytes }) => bytes.perSecond)),
  ];
}

/** The number of agents that can serve a CONNECT now, and the numbers of the others by state. */
function agentsCell(tunnels: readonly TunnelStatus[]): string {
  const states = tunnels.map(linkState);
  const among = (wanted: LinkState) => states.filter((state) => state === wanted).length;
  const others = (["suspended", "stands still", "draining"] as const).filter((state) => among(state) > 0);
  return [count(among("up")), ...others.map((state) => `${count(among(state))} ${state}`)].join(", ");
}

/** The effect of limits that do not refuse CONNECTs. */
const LIMIT_DOES: Readonly<Record<string, string>> = { bytesPerSecond: "slowed", handshakesPerSecond: "cut" };

/** `connectsPerSecond=10 refused 12 times` */
function limitsCell({ set, hit }: ClusterStatus["limits"]): string {
  const hits = Object.entries(hit).map(([limit, times]) => {
    const value = set[limit];
    const shown = value === undefined ? limit : `${limit}=${value}`;
    return `${shown} ${LIMIT_DOES[limit] ?? "refused"} ${times === 1 ? "once" : `${count(times)} times`}`;
  });
  return hits.join(", ") || "-";
}

export const AGENT_HEADING = ["CLUSTER", "AGENT", "LINK", "IDENTITY", "ADDRESS", "SINCE", "RTT", "RATE", "STREAMS"];

function agentsBlock(clusters: readonly ClusterStatus[], now: Date): string[] {
  const rows = clusters.flatMap(({ cluster, tunnels }) => tunnels.map((tunnel) => [cluster, ...agentRow(tunnel, now)]));
  return rows.length === 0 ? ["no agent is connected"] : columns([AGENT_HEADING, ...rows]);
}

/** The cells of a tunnel, but for its cluster. */
export function agentRow(
  { agent, identity, remote, protocol, connectedAt, roundTripMs, pace, streams, ...link }: TunnelStatus,
  now: Date,
) {
  // On a slow line the answer to a ping may wait behind seconds of payload. The acknowledgements did, too.
  const [measured, ms] = roundTripMs === null ? ["~", pace?.roundMs ?? null] : ["", roundTripMs];
  const roundTrip = ms === null ? "-" : `${measured}${ms} ms`;
  return [
    agent,
    protocol === "culvert" ? linkState(link) : `${linkState(link)}, ${printable(protocol, 20)}`,
    identity,
    withoutMapping(remote),
    ago(connectedAt, now),
    roundTrip,
    rateCell(pace),
    count(streams),
  ];
}

/** `20 KiB/s in, 1 MiB/s out`, as far as both are known. */
function rateCell(pace: PaceStatus): string {
  const rates = [
    [pace?.receivedPerSecond, "in"],
    [pace?.sentPerSecond, "out"],
  ] as const;
  const known = rates.flatMap(([rate, way]) => (rate == null ? [] : [`${size(rate)}/s ${way}`]));
  return known.join(", ") || "-";
}

type LinkState = "probe" | "suspended" | "stands still" | "draining" | "up";

/** A suspended link waits for its agent's next connection, even if it drains. */
function linkState(link: Pick<TunnelStatus, "probe" | "suspended" | "standsStill" | "draining">): LinkState {
  if (link.probe) return "probe";
  if (link.suspended) return "suspended";
  if (link.standsStill) return "stands still";
  return link.draining ? "draining" : "up";
}

/** `/status` does not include connections that ended before their request. */
const NO_REFUSALS =
  "no CONNECT and no agent was refused since the server started; connections that ended before they asked for anything, as in TLS, are in its log";

function refusalsBlock({ clusters, refusals }: Status, now: Date): string[] {
  const all = [
    ...refusals.map((refusal) => ({ cluster: "-", refusal })),
    ...clusters.flatMap(({ cluster, refusals: own }) => own.map((refusal) => ({ cluster, refusal }))),
  ].sort((a, b) => b.refusal.at.localeCompare(a.refusal.at));
  if (all.length === 0) return [NO_REFUSALS];
  const rows = all.slice(0, SHOWN_REFUSALS).map(({ cluster, refusal }) => [cluster, ...refusalRow(refusal, now)]);
  const more = all.length - rows.length;
  return [
    ...columns([["REFUSED", "AGO", "TIMES", "WHO", "CODE", "REASON"], ...rows]),
    ...(more > 0 ? [`and ${more} earlier ones: --json has them`] : []),
  ];
}

/** The longest target in a column, which is as wide as its widest cell; `--json` has all of it. */
const MAX_TARGET = 60;

function refusalRow({ side, code, from, target, reason, at, times }: RefusalStatus, now: Date): string[] {
  const to = target === undefined ? "" : `to ${printable(target, MAX_TARGET)}`;
  const who = [side, from, to].filter((part) => part !== "").join(" ");
  return [ago(at, now), count(times), who, code, reason];
}

/** Aligns cells. Agents and callers choose their names, so only printable characters of them reach the terminal. */
export function columns(rows: readonly (readonly string[])[]): string[] {
  const clean = rows.map((row) => row.map((cell) => printable(cell)));
  const widths = (clean[0] ?? []).map((_, index) => Math.max(...clean.map((row) => row[index]?.length ?? 0)));
  return clean.map((row) =>
    row
      .map((cell, index) => cell.padEnd(widths[index] ?? 0))
      .join("  ")
      .trimEnd(),
  );
}

export function problemLine(problem: string): string {
  return `! ${printable(problem, 500)}`;
}

/** A number with separators of thousands. */
export function count(value: number): string {
  return value.toLocaleString("en-US");
}

/** Bytes in the largest unit of which there is at least one. */
export function size(bytes: number): string {
  let value = bytes;
  for (const unit of ["B", "KiB", "MiB", "GiB"]) {
    if (value < 1_024) return `${unit === "B" ? value : value.toFixed(1)} ${unit}`;
    value /= 1_024;
  }
  return `${value.toFixed(1)} TiB`;
}

/** The time since then, in its two largest units. */
export function ago(since: string, now: Date): string {
  const elapsed = Math.max(0, Math.round((now.getTime() - Date.parse(since)) / 1_000));
  const [days, hours, minutes] = [Math.floor(elapsed / 86_400), Math.floor(elapsed / 3_600), Math.floor(elapsed / 60)];
  if (days > 0) return `${days}d${hours % 24}h`;
  if (hours > 0) return `${hours}h${minutes % 60}m`;
  return minutes > 0 ? `${minutes}m${elapsed % 60}s` : `${elapsed}s`;
}

function counted(number: number, noun: string): string {
  return `${count(number)} ${noun}${number === 1 ? "" : "s"}`;
}

/** Formats the status of an agent. A server that the agent leaves has a row until its streams have ended. */
export function agentTable({ agentId, pendingDials, memory, uplinks }: AgentStatus, now = new Date()): string {
  const held = `tunnels hold ${size(memory.heldBytes)} of ${size(memory.limitBytes)}`;
  const rows = uplinks.flatMap(({ server, state, since, sessions }) => {
    const time = since === undefined ? "-" : ago(since, now);
    if (sessions.length === 0) return [[server, state, "-", "-", time, "-", "-", "-"]];
    return sessions.map(({ serverId, remote, draining, roundTripMs, pace, streams }) => [
      server,
      draining ? "draining" : state,
      serverId,
      withoutMapping(remote),
      draining ? "-" : time,
      `${roundTripMs} ms`,
      rateCell(pace),
      count(streams),
    ]);
  });
  const heading = ["SERVER", "STATE", "SERVER-ID", "ADDRESS", "SINCE", "RTT", "RATE", "STREAMS"];
  const first = `agent ${printable(agentId)}: ${held}, ${counted(pendingDials, "target")} being dialled`;
  const failures = uplinks.flatMap(({ server, failure }) =>
    failure === undefined ? [] : [problemLine(`${server}: ${failure}`)],
  );
  return `${[first, ...failures, "", ...columns([heading, ...rows])].join("\n")}\n`;
}

/** Formats the status of a router. */
export function routerTable({ draining, connections, faults, routes, backends }: RouterStatus): string {
  const first = `router${draining ? ", draining" : ""}: ${counted(connections, "connection")}`;
  const routeRows = routes.map(({ route, sni, backends, sendProxy }) => [
    route,
    count(backends),
    sendProxy,
    sni.join(", "),
  ]);
  const backendRows = backends.map(({ backend, state, connections }) => [backend, state, count(connections)]);
  const lines = [
    first,
    ...faults.map(problemLine),
    "",
    ...columns([["ROUTE", "BACKENDS", "SEND-PROXY", "NAMES"], ...routeRows]),
    "",
    ...columns([["BACKEND", "STATE", "CONNECTIONS"], ...backendRows]),
  ];
  return `${lines.join("\n")}\n`;
}
