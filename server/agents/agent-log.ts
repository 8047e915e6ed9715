import type { Logger } from "../../shared/runtime/logger.ts";
import { type LineBudget, ThrottledLog } from "../../shared/runtime/throttled-log.ts";
import type { ClusterTunnels } from "../tunnels/cluster-tunnels.ts";

/** Lines of one agent in a minute: it may be lost and come back ten times. */
const LINES = 20;

/** The agent that a line is about. */
export interface LoggedAgent {
  readonly cluster: Pick<ClusterTunnels, "name" | "tunnels">;
  /** From the credential. */
  readonly identity: string;
  /** From the hello message; an agent can send another one each time with the same credential. */
  readonly agentId?: string;
}

/**
 * The log of authenticated agents, which can connect and disconnect all the time. Each agent has its own lines in a
 * minute, and all agents with one identity together have as many lines for each of them that is connected. Errors are
 * faults of this server: they are always logged and use up no lines, nor do lines at debug level.
 */
export class AgentLog {
  readonly #log: Logger;
  readonly #throttled: ThrottledLog;

  constructor(log: Logger) {
    this.#log = log;
    this.#throttled = new ThrottledLog(log);
  }

  write(
    level: "debug" | "info" | "warn" | "error",
    agent: LoggedAgent,
    fields: Readonly<Record<string, unknown>>,
    message: string,
  ): void {
    if (level === "error" || level === "debug") this.#log[level](fields, message);
    else this.#throttled.write(level, fields, message, { budgets: budgetsOf(agent) });
  }
}

function budgetsOf({ cluster, identity, agentId = "" }: LoggedAgent): LineBudget[] {
  const fields = { cluster: cluster.name, identity };
  const key = `${cluster.name}\n${identity}`;
  const owner = cluster.name;
  const ofAgent = { key: `${key}\n${agentId}`, owner, lines: LINES, subject: "lines of one agent", fields };
  const ofIdentity = { key, owner, lines: LINES, subject: "lines of agents with one identity", fields };
  return [ofAgent, { ...ofIdentity, moreLines: () => LINES * connectedAs(identity, cluster) }];
}

function connectedAs(identity: string, cluster: LoggedAgent["cluster"]): number {
  let connected = 0;
  for (const { agent } of cluster.tunnels()) if (agent.identity === identity) connected++;
  return connected;
}
