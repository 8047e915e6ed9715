import type { Duplex } from "node:stream";
import type { MemoryShare } from "../../shared/limits/memory-share.ts";
import { CulvertError } from "../../shared/outcomes.ts";

/** Places for each agent: its new connection, and one before it that the agent has lost and the server has not. */
const PLACES_PER_AGENT = 2;
/** Fewest places of a cluster: measuring agents need some as well, and dials of a new agent before it knows its servers. */
const LEAST = 16;
/** Bytes of the process that a connection takes while it says nothing: a TLS socket and a WebSocket. */
const CONNECTION_BYTES = 70 * 1024;
/** When an agent that found no place should come back, ms. */
const CROWDED_RETRY_MS = 1_000;

/** Maximum number of connections whose hello is awaited, for a cluster of so many agents. */
export function hellosAllowed(maxAgents: number): number {
  return Math.max(LEAST, PLACES_PER_AGENT * maxAgents);
}

/** The place of one connection. */
export interface HelloPlace {
  /** Its hello is accepted, or it has ended. */
  leave(): void;
}

/** What `HelloPlaces` needs to know of its cluster. */
export interface HelloRules {
  readonly name: string;
  /** May change at any time. */
  readonly maxAgents: number;
  readonly memory: Pick<MemoryShare, "onConnection">;
}

/**
 * The connections of authenticated agents of one cluster that are upgraded, and whose hello is not accepted yet. Without
 * a bound, one credential could take the descriptors and the memory of all tenants. A newcomer is refused, because no
 * older one can be told from an agent on a slow line; all of them have `--hello-timeout`.
 */
export class HelloPlaces {
  readonly #cluster: HelloRules;
  #taken = 0;

  constructor(cluster: HelloRules) {
    this.#cluster = cluster;
  }

  get size(): number {
    return this.#taken;
  }

  /** The place is left at the latest when the socket closes. Throws `overloaded` when all are taken. */
  enter(socket: Duplex): HelloPlace {
    const { name, maxAgents, memory } = this.#cluster;
    if (this.#taken >= hellosAllowed(maxAgents)) {
      const sentence = `too many connections of agents of cluster "${name}" have not sent their hello (--max-agents)`;
      throw new CulvertError("overloaded", sentence, { retryAfterMs: CROWDED_RETRY_MS });
    }
    this.#taken++;
    memory.onConnection(CONNECTION_BYTES);
    let isLeft = false;
    const leave = (): void => {
      if (isLeft) return;
      isLeft = true;
      this.#taken--;
      memory.onConnection(-CONNECTION_BYTES);
      socket.off("close", leave);
    };
    if (socket.closed) leave();
    else socket.once("close", leave);
    return { leave };
  }
}
