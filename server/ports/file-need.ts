import { fileLimitWarning } from "../../shared/process/file-limit.ts";
import type { ServerOptions } from "../options.ts";

type Bounds = Pick<
  ServerOptions,
  "maxHandshakes" | "maxWaitingHandshakes" | "maxWaitingConnections" | "maxPendingConnects" | "maxAgents"
>;

/** What callers and agents come to. */
export interface Entries {
  readonly tcpPorts: number;
  readonly unixSockets: number;
}

const OPTIONS =
  "--max-handshakes, --max-waiting-handshakes, --max-waiting-connections, --max-pending-connects, --max-agents";

/** How many connections strangers can have before their bounds turn them away. */
export function strangersAllowed(bounds: Bounds, { tcpPorts, unixSockets }: Entries): number {
  const { maxHandshakes, maxWaitingHandshakes, maxWaitingConnections } = bounds;
  // The first bound counts twice: for who is in a handshake, and for who has not said a word.
  const beforeTls = tcpPorts * (2 * maxHandshakes + maxWaitingHandshakes);
  return beforeTls + (tcpPorts + unixSockets) * maxWaitingConnections;
}

/** With them, agents and callers of one cluster that wait for an answer. No bound says how many have been answered. */
export function filesNeeded(bounds: Bounds, entries: Entries): number {
  return strangersAllowed(bounds, entries) + bounds.maxPendingConnects + bounds.maxAgents;
}

/** The warning about a limit of open files that they would come up against before those bounds. */
export function fileNeedWarning(bounds: Bounds, entries: Entries, limit?: number): string | undefined {
  return fileLimitWarning(filesNeeded(bounds, entries), `strangers, callers and agents together (${OPTIONS})`, limit);
}
