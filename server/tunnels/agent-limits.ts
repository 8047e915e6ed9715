import type { Duplex } from "node:stream";
import { Penalties, TokenBuckets } from "../../shared/basics/rate-limit.ts";
import { seconds } from "../../shared/basics/text.ts";
import { CONNECTION_BYTES } from "../../shared/limits/memory-account.ts";
import { CulvertError } from "../../shared/outcomes.ts";
import { CloseCode, LinkRefused } from "../../shared/wire/handshake.ts";

/** Places for each agent: its new connection, and one before it that is closing or that only the agent has lost. */
const PLACES_PER_AGENT = 2;
/**
 * Fewest places of a cluster: measuring agents need some as well, and dials of a new agent before it knows its servers.
 */
const LEAST = 16;
/** When an agent that found no place should come back, ms. */
const CROWDED_RETRY_MS = 1_000;

/** Maximum number of connections whose hello is awaited or that are closing, for a cluster of `maxAgents` agents. */
export function hellosAllowed(maxAgents: number): number {
  return Math.max(LEAST, PLACES_PER_AGENT * maxAgents);
}

/** The part of a cluster that `HelloPlaces` uses. */
interface HelloRules {
  readonly name: string;
  readonly maxAgents: number;
  readonly memory: { onConnection(bytes: number): void };
}

/**
 * The connections of a cluster's agents that have no tunnel: authenticated and upgraded before their hello is accepted,
 * and those whose WebSocket is closed while TCP is still open. Without a bound, one credential could take the
 * descriptors and the memory of all tenants. A newcomer is refused, because no older one can be told from an agent on a
 * slow line; all of them have a deadline.
 */
export class HelloPlaces {
  readonly #cluster: HelloRules;
  /** With their listener for the close. */
  readonly #sockets = new Map<Duplex, () => void>();
  readonly #closing = new WeakSet<Duplex>();

  constructor(cluster: HelloRules) {
    this.#cluster = cluster;
  }

  get size(): number {
    return this.#sockets.size;
  }

  /** The place is left at the latest when the socket closes. Throws `overloaded` when all are taken. */
  join(socket: Duplex): void {
    const { name, maxAgents } = this.#cluster;
    if (this.size >= hellosAllowed(maxAgents)) {
      const sentence = `too many connections of agents of cluster "${name}" have not sent their hello, or are closing (--max-agents)`;
      throw new CulvertError("overloaded", sentence, { retryAfterMs: CROWDED_RETRY_MS });
    }
    this.#count(socket);
  }

  /** The connection carries nothing more: it counts until it has closed, also where all places are taken. */
  closing(socket: Duplex): void {
    this.#closing.add(socket);
    this.#count(socket);
  }

  /**
   * Frees the place of a connection whose hello is accepted, or that has ended. A connection that is closing keeps its
   * place.
   */
  leave(socket: Duplex): void {
    if (!this.#closing.has(socket)) this.#forget(socket);
  }

  #count(socket: Duplex): void {
    if (socket.destroyed || this.#sockets.has(socket)) return;
    const onClose = (): void => this.#forget(socket);
    this.#sockets.set(socket, onClose);
    socket.once("close", onClose);
    this.#cluster.memory.onConnection(CONNECTION_BYTES.tls);
  }

  #forget(socket: Duplex): void {
    const onClose = this.#sockets.get(socket);
    if (onClose === undefined) return;
    this.#sockets.delete(socket);
    socket.off("close", onClose);
    this.#cluster.memory.onConnection(-CONNECTION_BYTES.tls);
  }
}

// ── how often tunnels begin ─────────────────────────────────────────────────────────────────────────────────────────

interface AgentNames {
  readonly agentId: string;
  readonly identity: string;
}

/** Rate of new tunnels of one agent. An honest agent resumes its link, and begins another one when it starts. */
const TUNNELS = { burst: 20, perSecond: 1 };
/** Rate of violations of one identity before all its agents wait: one bad agent alone stays below this rate. */
const VIOLATIONS = { burst: 10, perSecond: 10 / 60 };

/**
 * Limits how often the agents of a cluster begin tunnels. After a violation of the protocol an agent waits, 1 s at
 * first and up to 60 s, so that a flood does not continue in a new tunnel. Agents often share one identity (a
 * certificate, a service account): the others wait only when the identity violates the protocol repeatedly, under one
 * agent id after another. Resumes of links are not limited.
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

  /** Gives the token back: the agent looks for another server, and a balancer has led it to this one again. */
  didNotBegin(agent: AgentNames): void {
    this.#begun.giveBack(keyOf(agent));
  }

  /** Counts a violation: a tunnel of this agent was ended for the bytes that it sent. */
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
