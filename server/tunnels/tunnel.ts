import type { AgentIdentifiers } from "../../shared/address/agent-identifiers.ts";
import type { Target } from "../../shared/address/target.ts";
import { Queue } from "../../shared/basics/collections.ts";
import { deferred } from "../../shared/basics/promises.ts";
import type { MemoryAccount } from "../../shared/limits/memory-account.ts";
import type { Link } from "../../shared/link/link.ts";
import type { LinkPace, LinkWatcher } from "../../shared/link/link-events.ts";
import type { PeerIdentity } from "../../shared/tls/identity.ts";
import type { SessionOptions } from "../../shared/yamux/bounds.ts";
import { Session } from "../../shared/yamux/session.ts";
import type { Stream } from "../../shared/yamux/stream.ts";
import type { Transport } from "../../shared/yamux/transport.ts";
import type { ServerOptions } from "../options/options.ts";
import type { AgentStreams } from "./agent-streams.ts";
import { DialRecord, Opening, type OpenOptions } from "./opening.ts";

/** The part of a link that a tunnel uses. */
type TunnelLink = Pick<
  Link,
  | keyof Transport
  | "id"
  | "remote"
  | "suspended"
  | "lastByteAt"
  | "pace"
  | "unacknowledged"
  | "sendControl"
  | "probe"
  | "watch"
>;

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
  /** What it says that it serves, in canonical forms. */
  readonly identifiers: AgentIdentifiers;
}

/** How long the answer to a ping is waited for, ms; later requests send another ping. */
export const ROUND_TRIP_WITHIN_MS = 1_000;

let uses = 0;

/** Events of a tunnel and its link. */
interface TunnelWatcher extends Omit<LinkWatcher, "onControl"> {
  /** The tunnel takes no more streams: one end has asked for that. */
  onLeaving?(): void;
}

/** One connected agent: its identity, and the session with it. It ends when its link ends. */
export class Tunnel {
  readonly connectedAt = new Date();
  /** A number that grows with each use: the larger, the more recent. */
  lastUsed = 0;
  /** Resolves when the session has ended, with an error unless it was closed cleanly. */
  readonly closedWith: Promise<Error | undefined>;
  #agent: ConnectedAgent;
  readonly #link: TunnelLink;
  readonly #watcher: TunnelWatcher;
  readonly #session: Session;
  readonly #openings = new Queue<Opening>();
  readonly #dials = new DialRecord();
  #drainRequested = false;
  /** The ping that is under way on the present carrier. */
  #roundTrip: { readonly askedAt: number; readonly measured: Promise<number | undefined> } | undefined;
  /** Present while the agent has to prove its credential again. */
  #proofDue: { readonly reason: string; readonly timer: NodeJS.Timeout } | undefined;
  /** A new carrier proves the credential by its handshake; under inner TLS it does not. */
  readonly #provesByResume: boolean;

  constructor(
    agent: ConnectedAgent,
    link: TunnelLink,
    watcher: TunnelWatcher,
    options: Partial<SessionOptions>,
    pipe: Transport,
    streams: AgentStreams,
  ) {
    this.#agent = agent;
    this.#link = link;
    this.#watcher = watcher;
    this.#provesByResume = pipe === link;
    const closed = deferred<Error | undefined>();
    this.closedWith = closed.promise;
    link.watch({
      ...watcher,
      onSuspended: (cause) => {
        watcher.onSuspended?.(cause);
        for (const opening of this.#openings) opening.onSuspended();
      },
      onResumed: (resumption) => {
        watcher.onResumed?.(resumption);
        this.#roundTrip = undefined; // an earlier ping may have gone another way
        // An earlier request was lost with the carrier.
        if (this.#proofDue !== undefined) this.rotate(this.#proofDue.reason);
      },
      onClosed: () => {
        clearTimeout(this.#proofDue?.timer);
        watcher.onClosed?.();
      },
      onControl: (message) => {
        if (message.type !== "drain") return;
        this.#drainRequested = true;
        watcher.onLeaving?.();
      },
    });
    this.#session = new Session(
      "server",
      pipe,
      {
        onStream: (stream) => streams.onStream(stream),
        onGoAway: () => watcher.onLeaving?.(),
        onClosed: closed.resolve,
      },
      options,
    );
  }

  get id(): string {
    return this.#link.id;
  }

  get remote(): string {
    return this.#link.remote;
  }

  get agent(): ConnectedAgent {
    return this.#agent;
  }

  get streamCount(): number {
    return this.#session.streamCount;
  }

  get pendingOpens(): number {
    return this.#session.pendingOpens;
  }

  get bufferedBytes(): number {
    return this.#session.bufferedBytes;
  }

  /** The least round trip of the last few pings, which the session sends as its streams need them, ms. */
  get rttMs(): number {
    return this.#session.rttMs;
  }

  /** What its link knows of the line. */
  get pace(): LinkPace {
    return this.#link.pace;
  }

  /** Streams reset because the tunnel held more than its budget. */
  get resetForMemory(): number {
    return this.#session.resetForMemory;
  }

  /** The present round trip to the agent, ms; `undefined` without a connection. Concurrent calls share one ping. */
  roundTrip(): Promise<number | undefined> {
    if (this.suspended || this.closed) return Promise.resolve(undefined);
    const now = performance.now();
    if (this.#roundTrip === undefined || now - this.#roundTrip.askedAt >= ROUND_TRIP_WITHIN_MS) {
      const measured = this.#session.ping().catch(() => undefined);
      const asked = { askedAt: now, measured };
      this.#roundTrip = asked;
      void measured.then(() => {
        if (this.#roundTrip === asked) this.#roundTrip = undefined;
      });
    }
    return this.#roundTrip.measured;
  }

  /** Whether the agent accepts no callers' streams: it only measures, or is leaving. */
  get draining(): boolean {
    return this.agent.probe || this.leaving;
  }

  /** Whether the agent has asked to drain, or one end has sent go-away. */
  get leaving(): boolean {
    return this.#drainRequested || this.#session.draining;
  }

  /** Whether the link has no carrier: the streams of the tunnel wait. */
  get suspended(): boolean {
    return this.#link.suspended;
  }

  /** The agent must prove its credential again within `withinMs`, or the tunnel ends. */
  requireProof(reason: string, withinMs: number): void {
    this.#proofDue ??= { reason, timer: setTimeout(() => this.#onUnproven(), withinMs).unref() };
    this.rotate(reason);
  }

  #onUnproven(): void {
    if (this.suspended && this.#provesByResume) return; // the resume proves it, or the tunnel ends with its grace
    this.destroy(new Error(`${this.#proofDue?.reason}, and its agent has not come back to prove itself`));
  }

  /** The agent has proved its credential; `peer`: its certificate, if it was one. */
  onProof(peer = this.#agent.peer): void {
    this.#agent = { ...this.#agent, peer };
    clearTimeout(this.#proofDue?.timer);
    this.#proofDue = undefined;
  }

  /** Bytes that are kept for the next carrier of the link. */
  get replayBytes(): number {
    return this.#link.unacknowledged;
  }

  get closed(): boolean {
    return this.#session.closed;
  }

  /** The last dials of its agent have failed. */
  get rests(): boolean {
    return this.#dials.rests;
  }

  /** Asks the agent for `target`; resolves when the agent has answered that it is connected. */
  async open(target: Target, options: OpenOptions): Promise<Stream> {
    this.lastUsed = ++uses;
    const opening = new Opening(this.#session, this.#link, target, this.agent.agentId, options);
    this.#openings.join(opening.place);
    try {
      const stream = await opening.promise;
      this.#dials.succeeded();
      return stream;
    } catch (error) {
      this.#dials.failed(error);
      throw error;
    } finally {
      opening.place.leave();
    }
  }

  /** Asks the agent for a new connection; streams go on. */
  rotate(reason: string): void {
    this.#link.sendControl({ type: "rotate", reason });
  }

  /** Accepts nothing new and sends the agent elsewhere; open streams go on. */
  drain(retryAfterMs: number): void {
    if (this.closed) return;
    this.#link.sendControl({ type: "drain", retryAfterMs });
    this.#session.drain();
    this.#watcher.onLeaving?.();
  }

  /** Drains, waits for the streams up to `deadlineMs`, then ends the link. */
  close(deadlineMs: number): Promise<void> {
    const closed = this.#session.close(deadlineMs);
    this.#watcher.onLeaving?.();
    return closed;
  }

  destroy(reason: Error): void {
    this.#session.destroy(reason);
  }
}

// ── the best of several tunnels ──

/** The facts that decide which tunnel a CONNECT takes. */
export type Pickable = Pick<Tunnel, "streamCount" | "draining" | "suspended" | "closed" | "rests" | "lastUsed">;

/**
 * Picks the tunnel with the fewest streams that accepts new ones; among equals, the one that was used longest ago. A
 * tunnel whose dials fail comes after all others.
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
  if (one.rests !== other.rests) return other.rests;
  if (one.streamCount !== other.streamCount) return one.streamCount < other.streamCount;
  return one.lastUsed < other.lastUsed;
}

// ── windows ─────────────────────────────────────────────────────────────────────────────────────────────────────────

/**
 * The first window of a stream when memory is short, bytes. It is also the most that an unread stream costs at each
 * end.
 */
const SMALL_WINDOW = 16 * 1024;

/** The first windows of both ends of a session: `--initial-window`, and less where memory is short. */
export function firstWindows({ initialWindow }: Pick<ServerOptions, "initialWindow">): {
  readonly initialWindow: number;
  readonly freshWindow: number;
} {
  return { initialWindow: Math.min(SMALL_WINDOW, initialWindow), freshWindow: initialWindow };
}

/** The bounds of a session whose link an agent, or another server, has dialled. */
export function sessionOptions(
  options: Pick<ServerOptions, "initialWindow" | "maxWindow" | "sessionBudget" | "maxStreams">,
  pool: MemoryAccount,
): Partial<SessionOptions> {
  const { maxWindow, sessionBudget: budget, maxStreams } = options;
  return { ...firstWindows(options), maxWindow, budget, maxStreams, pool };
}
