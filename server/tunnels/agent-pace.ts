import { Penalties, TokenBuckets } from "../../shared/basics/rate-limit.ts";
import { seconds } from "../../shared/basics/text.ts";
import { CloseCode, LinkRefused } from "../../shared/wire/handshake.ts";
import type { AgentCandidate } from "./admission.ts";

type AgentNames = Pick<AgentCandidate, "agentId" | "identity">;

/** Rate of new tunnels of one agent. An honest agent resumes its link, and begins another one when it starts. */
const TUNNELS = { burst: 20, perSecond: 1 };
/** Rate of violations of one identity before all its agents wait: one bad agent of many commits fewer. */
const VIOLATIONS = { burst: 10, perSecond: 10 / 60 };

/**
 * Limits how often the agents of a cluster begin tunnels. After a violation of the protocol an agent waits, 1 s at
 * first and up to 60 s, so that a flood does not go on in a new tunnel. Agents often share one identity (a certificate,
 * a service account): the others wait only when the identity violates the protocol again and again, under one agent id
 * after another. Resumes of links are not limited.
 */
export class AgentPace {
  readonly #begun = new TokenBuckets(TUNNELS);
  readonly #offences = new TokenBuckets(VIOLATIONS);
  readonly #agents = new Penalties();
  readonly #identities = new Penalties();

  /** Throws `LinkRefused` for an agent that comes too early. */
  begin(agent: AgentNames): void {
    const key = keyOf(agent);
    const penaltyMs = Math.max(this.#agents.leftMs(key), this.#identities.leftMs(agent.identity));
    if (penaltyMs > 0) throw tooEarly("a tunnel of this agent was ended for a violation", penaltyMs);
    const waitMs = this.#begun.take(key);
    if (waitMs > 0) throw tooEarly("this agent begins tunnels too often", waitMs);
  }

  /** The agent has a tunnel here: it looks for another server, and has come to this one again by chance. */
  didNotBegin(agent: AgentNames): void {
    this.#begun.giveBack(keyOf(agent));
  }

  /** A tunnel of this agent was ended for what it sent. */
  offended(agent: AgentNames): void {
    this.#agents.add(keyOf(agent));
    if (this.#offences.take(agent.identity) > 0) this.#identities.add(agent.identity);
  }
}

function keyOf({ agentId, identity }: AgentNames): string {
  return `${identity}\n${agentId}`;
}

function tooEarly(why: string, retryAfterMs: number): LinkRefused {
  return new LinkRefused({
    closeCode: CloseCode.limited,
    reason: `${why}: come back in ${seconds(retryAfterMs)}`,
    retryAfterMs,
  });
}
