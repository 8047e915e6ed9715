import type { Logger } from "../../shared/runtime/logger.ts";
import type { ClusterTunnels } from "../tunnels/registry.ts";

/** Lines of one agent in one window: ten times lost and back. */
const LINES = 20;
const WINDOW_MS = 60_000;

type Level = "info" | "warn" | "error";

/** Whose line it is. */
export interface Teller {
  readonly cluster: Pick<ClusterTunnels, "name" | "tunnels">;
  /** What the credential says. */
  readonly identity: string;
  /** What the agent says of itself, once it has; with the same credential it may say another each time. */
  readonly agentId?: string;
}

/** What one identity has written since its first line. */
interface Minute {
  told: number;
  untold: number;
  /** Of the untold, those for which the identity had no room. */
  crowdedOut: number;
  /** How many it may: so many for each agent that comes with it. */
  allowed: number;
  /** Lines of each agent id; no more of them than there are lines. */
  readonly agents: Map<string, number>;
}

/**
 * The log of agents that are known. Whoever has a credential may come, go and come back all the time, so beyond some lines
 * in a minute the rest of an agent's are at debug, and so are those of one identity beyond as many for each of its agents
 * that is connected. When the minute is over one line says how many those were. Errors are faults of ours: they are
 * always written, and take no agent's room. Metrics count all.
 */
export class AgentLog {
  readonly #log: Logger;
  readonly #minutes = new Map<string, Minute>();

  constructor(log: Logger) {
    this.#log = log;
  }

  tell(level: Level, who: Teller, fields: Readonly<Record<string, unknown>>, message: string): void {
    if (level === "error" || this.#takes(who)) this.#log[level](fields, message);
    else this.#log.debug(fields, message);
  }

  #takes(who: Teller): boolean {
    const minute = this.#minuteOf(who);
    const { agentId = "" } = who;
    const lines = minute.agents.get(agentId) ?? 0;
    if (lines >= LINES || !hasRoom(minute, who)) {
      minute.untold++;
      return false;
    }
    minute.agents.set(agentId, lines + 1);
    minute.told++;
    return true;
  }

  #minuteOf({ cluster: { name: cluster }, identity }: Teller): Minute {
    const key = `${cluster} ${identity}`;
    const known = this.#minutes.get(key);
    if (known !== undefined) return known;
    const minute: Minute = { told: 0, untold: 0, crowdedOut: 0, allowed: LINES, agents: new Map() };
    this.#minutes.set(key, minute);
    setTimeout(() => {
      this.#minutes.delete(key);
      const { untold } = minute;
      if (untold > 0)
        this.#log.warn({ cluster, identity, untold }, "an agent's lines of a minute were not all written");
    }, WINDOW_MS).unref();
    return minute;
  }
}

/** Agents are counted when it matters only, and then not for each line. */
function hasRoom(minute: Minute, { cluster, identity }: Teller): boolean {
  if (minute.told < minute.allowed) return true;
  if (minute.crowdedOut % LINES === 0) {
    let connected = 0;
    for (const { agent } of cluster.tunnels()) if (agent.identity === identity) connected++;
    minute.allowed = Math.max(minute.allowed, LINES * connected);
    if (minute.told < minute.allowed) return true;
  }
  minute.crowdedOut++;
  return false;
}
