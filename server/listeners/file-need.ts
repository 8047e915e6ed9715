import { MAX_CONNECTIONS } from "../../shared/admin/connections.ts";
import type { ServerOptions } from "../options/options.ts";
import { hellosAllowed } from "../tunnels/agent-limits.ts";
import { ALL_PORTS_FACTOR } from "./port-connections.ts";

/** How many listeners a server has. */
interface Listeners {
  readonly tcpPorts: number;
  readonly unixSockets: number;
  /** The health and the admin port, if they are on. */
  readonly operatorPorts: number;
}

/**
 * Files of one agent: its tunnel, and a replaced one whose streams go on (there may be as many of them as agents), each
 * with a second connection while its link moves to that.
 */
const FILES_PER_AGENT = 4;

/** Maximum number of connections of unauthenticated peers. */
export function unauthenticatedAllowed(
  bounds: ServerOptions,
  { tcpPorts, unixSockets, operatorPorts }: Listeners,
): number {
  const { maxHandshakes, maxWaitingHandshakes, maxWaitingConnections, clusters } = bounds;
  // The first bound counts twice: for connections in a handshake, and for those without a byte.
  const beforeTls = tcpPorts * (2 * maxHandshakes + maxWaitingHandshakes);
  // Each pool holds `maxWaitingConnections`.
  const tcpPools = clusters === "" || tcpPorts === 0 ? tcpPorts : ALL_PORTS_FACTOR;
  return beforeTls + (tcpPools + unixSockets) * maxWaitingConnections + operatorPorts * MAX_CONNECTIONS;
}

/**
 * The number of open files while all bounds are reached. Established connections have no bound. It counts
 *
 * - the listeners, and the connections of unauthenticated peers;
 * - of one cluster: connections in inner TLS or before their hello, tokens that are verified, callers that wait for an
 *   answer, and agents.
 */
export function filesNeeded(bounds: ServerOptions, listeners: Listeners): number {
  const listening = listeners.tcpPorts + listeners.unixSockets;
  const agents = FILES_PER_AGENT * bounds.maxAgents + hellosAllowed(bounds.maxAgents);
  // Agents before their hello and in the handshake; tokens of agents and of callers.
  const inHandshakes = 2 * bounds.maxInnerHandshakes + 2 * bounds.maxTokenVerifications;
  return listening + unauthenticatedAllowed(bounds, listeners) + inHandshakes + bounds.maxPendingConnects + agents;
}
