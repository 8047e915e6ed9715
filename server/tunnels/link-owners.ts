import type { Duplex } from "node:stream";
import type { MemoryAccount } from "../../shared/limits/memory-account.ts";
import type { Endpoint } from "../../shared/listen/proxy-protocol.ts";

/** What the owner of a link learns of a connection of an agent that another server carries there, beside its bytes. */
export interface CarriedFacts {
  readonly cluster: string;
  /** The agent's address, or its proxy's. */
  readonly source: Endpoint;
  /** The agent's certificate and the intermediate ones (DER), which TLS has verified; empty: it has shown none. */
  readonly chain: readonly Buffer[];
}

/** The way to the servers that have issued other links than this one (server/peers). */
export interface LinkOwners {
  /**
   * Opens a stream to a server that takes it as the connection of an agent. Rejects when no such server is found, or it
   * does not take the connection. `memory` pays for what the stream holds here.
   */
  open(serverId: string, facts: CarriedFacts, signal: AbortSignal, memory: MemoryAccount): Promise<Duplex>;
}

/** Takes a stream from the server `via` as the connection of an agent. Throws a `CulvertError`. */
export type TakeCarried = (stream: Duplex, facts: CarriedFacts, via: string) => void;
