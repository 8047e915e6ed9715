import { ALREADY_CONNECTED, CloseCode, LinkRefused } from "../../shared/wire/handshake.ts";
import type { RoutingRules } from "../clusters/routing-rules.ts";
import type { Tunnel } from "./tunnel.ts";

/** An agent that asks for a tunnel: fields of its hello, and the identity that its credential proves. */
export interface AgentCandidate {
  readonly agentId: string;
  readonly instance: string;
  readonly identity: string;
}

/** The agent that has the id now. */
export interface IdHolder extends AgentCandidate {
  /** Its tunnel accepts no new streams: its process may have another tunnel. */
  readonly draining: boolean;
  /** Its link has no carrier: its process may have given the link up. */
  readonly suspended: boolean;
  /** It has replaced the process that asks now: both run. */
  readonly runsBeside: boolean;
  /** The address that it is connected from. */
  readonly address: string | undefined;
}

export interface AgentRoom {
  readonly serverId: string;
  readonly cluster: string;
  /** Agents that have a place now. */
  readonly agents: number;
  readonly maxAgents: number;
}

/** Ends the tunnel of an agent that may not claim what it does, by the rules of now. Returns whether it did. */
export function endUnclaimable(
  tunnel: Tunnel,
  { name, rules }: { readonly name: string; readonly rules: RoutingRules },
): boolean {
  const { identifiers, identity } = tunnel.agent;
  const foreign = rules.claims?.objection(identifiers, { identity, peer: tunnel.peer });
  if (foreign === undefined) return false;
  tunnel.destroy(new Error(`the agent may no longer claim ${foreign} in cluster "${name}" (agents.claims)`));
  return true;
}

/**
 * Admits an agent, or throws `LinkRefused`. An agent id belongs to one identity at a time:
 *
 * | holder of the id               | result                                     |
 * |--------------------------------|--------------------------------------------|
 * | none                           | admitted while there is room               |
 * | same identity, other instance  | admitted, the old tunnel drains (restart)  |
 * | same identity, same instance   | already connected, unless its tunnel drains or is suspended |
 * | same identity, has replaced this instance before (two run) | refused: another running process |
 * | other identity                 | duplicate                                  |
 */
export function admit(candidate: AgentCandidate, holder: IdHolder | undefined, room: AgentRoom): void {
  const { agentId } = candidate;
  if (holder === undefined) {
    if (room.agents < room.maxAgents) return;
    throw new LinkRefused({
      closeCode: CloseCode.limited,
      reason: `cluster "${room.cluster}" has ${room.agents} agents, its limit (--max-agents)`,
    });
  }
  if (holder.identity !== candidate.identity) {
    throw new LinkRefused({
      closeCode: CloseCode.duplicate,
      reason: `agent id "${agentId}" belongs to another certificate: give each agent its own --agent-id`,
    });
  }
  if (holder.draining || holder.suspended) return;
  const { alreadyConnected: closeCode } = CloseCode;
  if (holder.instance === candidate.instance) {
    throw new LinkRefused({
      closeCode,
      reason: `${ALREADY_CONNECTED}: this agent has a tunnel to server "${room.serverId}"`,
    });
  }
  if (holder.runsBeside) {
    const from = holder.address === undefined ? "" : ` (from ${holder.address})`;
    throw new LinkRefused({
      closeCode,
      reason: `another running process uses agent id "${agentId}"${from}: give each its own --agent-id`,
    });
  }
}

/** Maximum number of processes of one agent id that are remembered: the last ones. */
const KEPT = 64;

/**
 * The processes that have had an agent id before the present one, by `instance`. Most have ended, because the agent was
 * restarted. A process that asks again has not: two agents run with one id.
 */
export class EarlierProcesses {
  readonly #isRunning: Map<string, boolean>;

  /** `before`: those of the present process's predecessor. */
  constructor(before?: EarlierProcesses) {
    this.#isRunning = new Map(before === undefined ? [] : before.#isRunning);
  }

  has(instance: string): boolean {
    return this.#isRunning.has(instance);
  }

  /** It has asked for a tunnel after it was replaced. */
  isRunning(instance: string): boolean {
    return this.#isRunning.get(instance) === true;
  }

  note(instance: string, isRunning: boolean): void {
    this.#isRunning.delete(instance); // the latest is the last entry
    this.#isRunning.set(instance, isRunning);
    const [oldest] = this.#isRunning.keys();
    if (this.#isRunning.size > KEPT && oldest !== undefined) this.#isRunning.delete(oldest);
  }

  /** It has the id again. */
  forget(instance: string): void {
    this.#isRunning.delete(instance);
  }
}
