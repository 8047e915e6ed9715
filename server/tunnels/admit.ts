import { CloseCode, LinkRefused } from "../../shared/wire/handshake.ts";

/** Who asks for a tunnel: the hello's words, and the identity that the credential proves. */
export interface Candidate {
  readonly agentId: string;
  readonly instance: string;
  readonly identity: string;
}

/** Who holds the id now. */
export interface IdHolder extends Candidate {
  /** Its tunnel takes no new streams: the same process may have another. */
  readonly draining: boolean;
  /** Its link has no carrier: the process may have given it up. */
  readonly suspended: boolean;
  /** It took the id from the very process that asks: both run. */
  readonly runsBeside: boolean;
  /** Where it is connected from, once it is. */
  readonly address: string | undefined;
}

export interface Room {
  readonly serverId: string;
  readonly cluster: string;
  /** Agents that hold a place now. */
  readonly agents: number;
  readonly maxAgents: number;
}

/**
 * May this agent hold a tunnel, given who holds its id now? (design: "Handshake": an agent id belongs to an identity)
 *
 * | holder of the id               | verdict                                    |
 * |--------------------------------|--------------------------------------------|
 * | none                           | admitted while there is room               |
 * | same identity, other instance  | admitted, the old tunnel drains (restart)  |
 * | same identity, same instance   | already connected, unless its tunnel drains or is suspended |
 * | same identity, and has taken the id from this instance before (two run) | the same |
 * | other identity                 | duplicate                                  |
 */
export function admit(candidate: Candidate, holder: IdHolder | undefined, room: Room): void {
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
      reason: `already_connected: this agent has a tunnel to server "${room.serverId}"`,
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
