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

/** Why another server has reset a stream, if it was neither the target nor the caller. */
export type HopEnd = "agent_lost" | "draining" | "stalled";

/** The codes of resets between servers; other versions may have more. */
const CODES = { agent_lost: 1, draining: 2, stalled: 3 } as const satisfies Record<HopEnd, number>;

/** The code of a reset, for the server that the caller came to; 0: the target has reset the connection. */
export function hopResetCode(end: HopEnd | undefined): number {
  return end === undefined ? 0 : CODES[end];
}

/** What another server has said when it reset this stream. */
export function hopEndOf({ resetCode }: Pick<Stream, "resetCode">): HopEnd | undefined {
  return (Object.keys(CODES) as HopEnd[]).find((end) => CODES[end] === resetCode);
}

export function hopEndSentence(end: HopEnd, serverId: string): string {
  switch (end) {
    case "agent_lost":
      return `server "${serverId}" has lost the connection to the agent`;
    case "draining":
      return `server "${serverId}" has shut down, and this was still open when its --drain-timeout was over`;
    case "stalled":
      return `server "${serverId}" needed the memory that this connection held for a reader that had stopped`;
  }
}
