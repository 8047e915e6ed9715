import type { Duplex } from "node:stream";
import type { AgentIdentifiers } from "../../shared/address/agent-identifiers.ts";
import type { Target } from "../../shared/address/target.ts";
import type { Cancellation } from "../../shared/basics/promises.ts";
import type { LinkPace } from "../../shared/link/link-events.ts";
import type { CulvertError } from "../../shared/outcomes.ts";
import type { PeerIdentity } from "../../shared/tls/identity.ts";
import type { OpenAnswer } from "../../shared/wire/stream-head.ts";
import type { AuditedParty } from "../audit/audit-trail.ts";
import type { CarrierRecord } from "./carrier-record.ts";

/** The agent at the other end of a tunnel. */
export interface ConnectedAgent {
  readonly agentId: string;
  /** Random for each start of the agent's process. */
  readonly instance: string;
  /** The credential's subject: an agent id belongs to it. */
  readonly identity: string;
  /** The certificate that it has shown last, if that is its credential. */
  readonly peer: PeerIdentity | undefined;
  readonly software: string;
  /** The agent only measures, and takes no callers' streams. */
  readonly probe: boolean;
  /** The proxy that its first connection went through, as it says. */
  readonly proxy?: string | undefined;
  /** The identifiers that its agent announces, in canonical forms. */
  readonly identifiers: AgentIdentifiers;
}

const SUBJECT = "SUB=";

/** An agent in the audit trail. `identity` of one with a token is its subject behind a prefix (`authenticateAgent`). */
export function partyOf({ peer, identity }: Pick<ConnectedAgent, "peer" | "identity">): AuditedParty {
  return peer === undefined ? { subject: identity.slice(SUBJECT.length) } : { peer };
}

/** The protocol of an agent: culvert's own, or that of Konnectivity's agents. */
export type AgentProtocol = "culvert" | "konnectivity";

/** How long the answer to a ping is waited for, ms; later requests send another ping. */
export const ROUND_TRIP_WITHIN_MS = 1_000;

/** The facts that decide which tunnel a CONNECT takes. */
export interface Pickable {
  /** Open streams, each counted from when it is requested. */
  readonly streamCount: number;
  /** The agent accepts no callers' streams: it only measures, or is leaving. */
  readonly draining: boolean;
  /** There is no connection to the agent now, and its streams wait for the next one. */
  readonly suspended: boolean;
  readonly closed: boolean;
  /** The last dials of its agent have failed: other agents are picked before it. */
  readonly dialsFail: boolean;
  /** Set by `openStream`: a number that grows with each use of any tunnel. */
  lastUsed: number;
}

/**
 * One connected agent: who it is, and streams to its targets. `YamuxTunnel` is the tunnel of culvert's agents,
 * `KonnectivityTunnel` that of Konnectivity's. It gets a place by `AgentPlaces.reserve`, and streams from `join` of
 * this place on.
 */
export interface Tunnel extends Pickable {
  readonly id: string;
  readonly protocol: AgentProtocol;
  readonly agent: ConnectedAgent;
  /** `address:port` that the agent, or its proxy, connects from. */
  readonly remote: string;
  readonly connectedAt: Date;
  readonly carriers: CarrierRecord;
  /** Whether the agent has asked to drain, or this server has asked it to go. */
  readonly leaving: boolean;
  /** Streams that the agent has not taken yet. */
  readonly pendingOpens: number;
  /** Bytes that its streams hold. */
  readonly bufferedBytes: number;
  /** Bytes that are kept for its next connection. */
  readonly replayBytes: number;
  /** Streams reset because the tunnel held more than its budget. */
  readonly resetForMemory: number;
  /** The least round trip of the last few pings, ms; 0: none yet. */
  readonly rttMs: number;
  /** The agent is there, and takes no packets: those for one of its targets hold up all others. */
  readonly standsStill: boolean;
  /** The measured pace of the line. */
  readonly pace: LinkPace;
  /**
   * Asks the agent for `target`; resolves when the agent has answered that it is connected, and rejects with a
   * `CulvertError`. A stream that fails with its tunnel has an error with the code `ESESSION`, whose cause is absent if
   * one end has closed the tunnel.
   */
  open(target: Target, options: OpenOptions): Promise<Duplex>;
  /** The present round trip to the agent, ms; `undefined` without a connection. Concurrent calls share one ping. */
  roundTrip(): Promise<number | undefined>;
  /** Asks the agent for a new connection; streams go on. */
  rotate(reason: string): void;
  /** The agent must prove its credential again within `withinMs`, or the tunnel ends. */
  requireProof(reason: string, withinMs: number): void;
  /** Accepts nothing new and sends the agent elsewhere; open streams go on. */
  drain(retryAfterMs: number): void;
  /** Drains, waits for the streams up to `deadlineMs`, then ends the connection. */
  close(deadlineMs: number): Promise<void>;
  destroy(reason: Error): void;
}

/** A stream to a target, as it is asked of tunnels and of other servers. */
export interface AskedStream {
  /** The server's name for the connection, for the logs of both ends. */
  readonly id: string;
  /** When the answer must have arrived, by `performance.now()`. */
  readonly deadline: number;
  /** Cancelled when the answer is not needed any more: the reset ends the agent's dial. */
  readonly cancellation: Cancellation<CulvertError>;
  /** Present: the agent is asked for the times of its steps. */
  readonly watch?: OpeningWatcher | undefined;
  /** The span of the CONNECT, if it is kept: the agent adds its own. */
  readonly traceparent?: string | undefined;
}

export interface OpenOptions extends AskedStream {
  /** The part of the time left until `deadline` that the agent gets for its dial, ms. */
  readonly dialTimeoutMs: number;
  /** Silence of an agent that has not taken the stream, ms, after which another agent is asked. */
  readonly ackTimeoutMs: number;
  /** Could another agent take the stream? Asked while the link of this one has no connection, or is silent. */
  hasAlternative(): boolean;
  /** Resolves when any tunnel takes streams: this one again, or one that has come meanwhile. */
  whenAvailable(until: Cancellation<CulvertError>): Promise<unknown>;
  /** Whether the address that the agent reports as dialled is the port of this server's own callers. */
  leadsBack?(dialled: string): boolean;
}

export interface OpeningWatcher {
  /** The agent has taken the stream. */
  onAcknowledged(): void;
  onAnswer(answer: OpenAnswer): void;
}

/**
 * Picks the tunnel with the fewest streams that accepts new ones; among equals, the one that was used longest ago. A
 * tunnel whose last dials have failed comes after all others.
 */
export function pick<T extends Pickable>(tunnels: Iterable<T>, except?: T): T | undefined {
  let best: T | undefined;
  for (const tunnel of tunnels) {
    if (tunnel === except || tunnel.draining || tunnel.suspended || tunnel.closed) continue;
    if (best === undefined || precedes(tunnel, best)) best = tunnel;
  }
  return best;
}

function precedes(one: Pickable, other: Pickable): boolean {
  if (one.dialsFail !== other.dialsFail) return other.dialsFail;
  if (one.streamCount !== other.streamCount) return one.streamCount < other.streamCount;
  return one.lastUsed < other.lastUsed;
}
