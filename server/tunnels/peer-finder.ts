import type { Duplex } from "node:stream";
import type { Target } from "../../shared/address/target.ts";
import type { MemoryAccount } from "../../shared/limits/memory-account.ts";
import type { AskedStream } from "./tunnel.ts";

/** Finds other servers (server/peers). */
export interface PeerFinder {
  /** A server with agents of the cluster, other than these. Never rejects. */
  find(cluster: string, except?: readonly ServerHop[]): Promise<ServerHop | undefined>;
  /** Why nobody can be found now who may have the cluster, as the end of a sentence. */
  trouble(cluster: string): string | undefined;
}

/** Another server, which has said that agents of a cluster are connected to it. */
export interface ServerHop {
  readonly serverId: string;
  /** The agent there that has the stream; known from its answer on. */
  readonly agent: string | undefined;
  /** Opens a stream to the target there; rejects with a `CulvertError`. */
  open(target: Target, options: HopOptions): Promise<Duplex>;
}

export interface HopOptions extends AskedStream {
  /** Silence of a server that has not taken the stream, ms, after which another one may be asked. */
  readonly ackTimeoutMs: number;
  /** The account of the cluster, which pays for what the stream holds here. */
  readonly memory: MemoryAccount;
  /** Only agents that claim the target may be asked. */
  readonly onlyClaimed: boolean;
}
