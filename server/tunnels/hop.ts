import type { Target } from "../../shared/address/target.ts";
import type { Cancellation } from "../../shared/basics/promises.ts";
import type { MemoryAccount } from "../../shared/limits/memory-account.ts";
import type { CulvertError } from "../../shared/outcomes.ts";
import type { OpenAnswer } from "../../shared/wire/stream-head.ts";
import type { Stream } from "../../shared/yamux/stream.ts";

/** How a stream is opened at another server; as `OpenOptions`. */
export interface HopOptions {
  readonly id: string;
  readonly cancellation: Cancellation<CulvertError>;
  /** The whole time until an answer must be there, ms. */
  readonly timeoutMs: number;
  /** Time for the server to take the stream, ms; after it the server does not respond. */
  readonly ackTimeoutMs: number;
  /** The account of the cluster, which pays for what the stream holds here. */
  readonly memory: MemoryAccount;
  /** Only agents that claim the target may be asked. */
  readonly onlyClaimed: boolean;
  /** Present: the agent is asked for the times of its steps. */
  readonly watch?: { onAcknowledged(): void; onAnswer(answer: OpenAnswer): void } | undefined;
}

/** Another server, which has said that agents of a cluster are connected to it. */
export interface ServerHop {
  readonly serverId: string;
  /** The agent there that has the stream; known from its answer on. */
  readonly agent: string | undefined;
  /** Opens a stream to the target there; rejects with a `CulvertError`. */
  open(target: Target, options: HopOptions): Promise<Stream>;
}

/** Finds other servers (server/peers). */
export interface PeerFinder {
  /** A server with agents of the cluster, other than these. Never rejects. */
  find(cluster: string, except?: readonly ServerHop[]): Promise<ServerHop | undefined>;
  /** Why nobody can be found now, as the end of a sentence. */
  readonly trouble: string | undefined;
}
