import { Penalties, TokenBuckets } from "../../shared/basics/rate-limit.ts";
import { seconds } from "../../shared/basics/text.ts";
import { CloseCode, LinkRefused } from "../../shared/wire/handshake.ts";

/** Who begins a tunnel. */
export interface PacedAgent {
  readonly agentId: string;
  readonly identity: string;
}

/** New tunnels of one agent. An honest one keeps its link over cuts, and begins another when it starts. */
const OF_AN_AGENT = { burst: 20, perSecond: 1 };
/** Offences of one identity before all its agents pay for them: one bad agent of many commits fewer in a minute. */
const OFFENCES = { burst: 10, perSecond: 10 / 60 };

/**
 * How often the agents of a cluster begin tunnels. Each costs a handshake and what the tunnel allows, so an agent that
 * floods, ends and comes again is one flood: after a violation of the protocol it waits, 1 s at first and up to 60 s.
 * Agents often share one identity (a certificate, a service account). Those who do not offend wait only when theirs
 * offends again and again, under one agent id after another. Resumes of links are not paced.
 */
export class AgentPace {
  readonly #begun = new TokenBuckets(OF_AN_AGENT);
  readonly #offences = new TokenBuckets(OFFENCES);
  readonly #agents = new Penalties();
  readonly #identities = new Penalties();

  /** Throws `LinkRefused` for one that comes too early. */
  begin(agent: PacedAgent): void {
    const key = keyOf(agent);
    const penaltyMs = Math.max(this.#agents.leftMs(key), this.#identities.leftMs(agent.identity));
    if (penaltyMs > 0) throw tooEarly("a tunnel of this agent was ended for a violation", penaltyMs);
    const waitMs = this.#begun.take(key);
    if (waitMs > 0) throw tooEarly("this agent begins tunnels too often", waitMs);
  }

  /** A tunnel of this agent was ended for what it sent. */
  offended(agent: PacedAgent): void {
    this.#agents.add(keyOf(agent));
    if (this.#offences.take(agent.identity) > 0) this.#identities.add(agent.identity);
  }
}

function keyOf({ agentId, identity }: PacedAgent): string {
  return `${identity}\n${agentId}`;
}

function tooEarly(why: string, retryAfterMs: number): LinkRefused {
  return new LinkRefused({
    closeCode: CloseCode.limited,
    reason: `${why}: come back in ${seconds(retryAfterMs)}`,
    retryAfterMs,
  });
}
