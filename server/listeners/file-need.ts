import { MAX_CONNECTIONS } from "../../shared/admin/connections.ts";
import { fileLimitWarning } from "../../shared/limits/file-descriptors.ts";
import type { ServerOptions } from "../options/options.ts";
import { FULL_ONES } from "./waiting-connections.ts";

type Bounds = Pick<
  ServerOptions,
  "maxHandshakes" | "maxWaitingHandshakes" | "maxWaitingConnections" | "maxPendingConnects" | "maxAgents" | "clusters"
>;

/** What callers, agents and probes come to. */
export interface Entries {
  readonly tcpPorts: number;
  readonly unixSockets: number;
  /** The health and the admin port, as far as they are on. */
  readonly operatorPorts: number;
}

/**
 * What an agent can have open: its tunnel, and one that was replaced and whose streams go on (there may be as many of them as
 * agents), each with a second connection while it moves to that (make before break).
 */
const FILES_PER_AGENT = 4;

/** How many connections strangers can have before their bounds turn them away. */
export function strangersAllowed(bounds: Bounds, { tcpPorts, unixSockets, operatorPorts }: Entries): number {
  const { maxHandshakes, maxWaitingHandshakes, maxWaitingConnections, clusters } = bounds;
  // The first bound counts twice: for who is in a handshake, and for who has not said a word.
  const beforeTls = tcpPorts * (2 * maxHandshakes + maxWaitingHandshakes);
  const full = clusters === "" || tcpPorts === 0 ? tcpPorts : FULL_ONES;
  return beforeTls + (full + unixSockets) * maxWaitingConnections + operatorPorts * MAX_CONNECTIONS;
}

/**
 * Descriptors for all of them, and for the agents and waiting callers of one cluster. No bound says how many callers have been
 * answered.
 */
export function filesNeeded(bounds: Bounds, entries: Entries): number {
  const listeners = entries.tcpPorts + entries.unixSockets;
  const agents = FILES_PER_AGENT * bounds.maxAgents;
  return listeners + strangersAllowed(bounds, entries) + bounds.maxPendingConnects + agents;
}

/** The warning about a limit of open files that they would come up against, or near, before those bounds. */
export function fileNeedWarning(bounds: Bounds, entries: Entries, limit?: number): string | undefined {
  return fileLimitWarning(filesNeeded(bounds, entries), limit);
}
