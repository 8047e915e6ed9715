import { printable } from "../shared/outcomes.ts";
import type { AgentStatus, RouterStatus } from "./status-answer.ts";
import { ago, columns, count, size } from "./status-cells.ts";

/** An agent's status for a person. A server that the agent is leaving has a row of its own until its streams have ended. */
export function agentTable({ agentId, pendingDials, memory, uplinks }: AgentStatus, now = new Date()): string {
  const held = `tunnels hold ${size(memory.heldBytes)} of ${size(memory.limitBytes)}`;
  const rows = uplinks.flatMap(({ server, state, since, sessions }) => {
    const time = since === undefined ? "-" : ago(since, now);
    if (sessions.length === 0) return [[server, state, "-", "-", time, "-", "-"]];
    return sessions.map(({ serverId, remote, draining, roundTripMs, streams }) => [
      ...[server, draining ? "draining" : state, serverId, remote.replace(/^::ffff:/, "")],
      ...[draining ? "-" : time, `${roundTripMs} ms`, count(streams)],
    ]);
  });
  const heading = ["SERVER", "STATE", "SERVER-ID", "ADDRESS", "SINCE", "RTT", "STREAMS"];
  const first = `agent ${printable(agentId)}: ${held}, ${count(pendingDials)} targets being dialled`;
  return `${[first, "", ...columns([heading, ...rows])].join("\n")}\n`;
}

/** A router's status for a person. */
export function routerTable({ draining, connections, faults, routes, backends }: RouterStatus): string {
  const first = `router${draining ? ", draining" : ""}: ${count(connections)} connections`;
  const routeRows = routes.map(({ route, sni, backends, sendProxy }) => [
    ...[route, count(backends), sendProxy, sni.join(", ")],
  ]);
  const backendRows = backends.map(({ backend, state, connections }) => [backend, state, count(connections)]);
  const lines = [
    ...[first, ...faults.map((fault) => `! ${printable(fault, 500)}`), ""],
    ...columns([["ROUTE", "BACKENDS", "SEND-PROXY", "NAMES"], ...routeRows]),
    "",
    ...columns([["BACKEND", "STATE", "CONNECTIONS"], ...backendRows]),
  ];
  return `${lines.join("\n")}\n`;
}
