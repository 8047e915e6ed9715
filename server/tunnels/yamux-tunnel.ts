import type { Target } from "../../shared/address/target.ts";
import { Queue } from "../../shared/basics/collections.ts";
import { deferred } from "../../shared/basics/promises.ts";
import type { MemoryAccount } from "../../shared/limits/memory-account.ts";
import type { ControlMessage } from "../../shared/link/control.ts";
import type { LinkPace, LinkWatcher } from "../../shared/link/link-events.ts";
import type { SessionOptions } from "../../shared/yamux/bounds.ts";
import { Session } from "../../shared/yamux/session.ts";
import type { Stream } from "../../shared/yamux/stream.ts";
import type { Transport } from "../../shared/yamux/transport.ts";
import type { ServerOptions } from "../options/options.ts";
import type { AgentStreams } from "./agent-streams.ts";
import { CarrierRecord } from "./carrier-record.ts";
import { DialRecord, Opening, type OpeningLink } from "./opening.ts";
import { type ConnectedAgent, type OpenOptions, ROUND_TRIP_WITHIN_MS, type Tunnel } from "./tunnel.ts";

/** The part of a link that a tunnel uses. */
interface TunnelLink extends Transport, OpeningLink {
  readonly id: string;
  readonly remote: string;
  readonly pace: LinkPace;
  readonly unacknowledged: number;
  sendControl(message: ControlMessage): void;
  watch(watcher: LinkWatcher): void;
}

/** Events of a tunnel and its link. */
interface TunnelWatcher extends Omit<LinkWatcher, "onControl"> {
  /** The tunnel takes no more streams: one end has asked for that. */
  onLeaving?(): void;
}

/** An agent of culvert, and the yamux session with it. It ends when its link ends. */
export class YamuxTunnel implements Tunnel {
  readonly protocol = "culvert";
  /** Each of its streams has a window of its own. */
  readonly standsStill = false;
  readonly connectedAt = new Date();
  readonly carriers = new CarrierRecord();
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
        this.carriers.onLost(cause);
        watcher.onSuspended?.(cause);
        for (const opening of this.#openings) opening.onSuspended();
      },
      onResumed: (resumption) => {
        this.carriers.onResumed();
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

  get rttMs(): number {
    return this.#session.rttMs;
  }

  get pace(): LinkPace {
    return this.#link.pace;
  }

  get resetForMemory(): number {
    return this.#session.resetForMemory;
  }

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

  get draining(): boolean {
    return this.agent.probe || this.leaving;
  }

  get leaving(): boolean {
    return this.#drainRequested || this.#session.draining;
  }

  get suspended(): boolean {
    return this.#link.suspended;
  }

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

  get replayBytes(): number {
    return this.#link.unacknowledged;
  }

  get closed(): boolean {
    return this.#session.closed;
  }

  get dialsFail(): boolean {
    return this.#dials.rests;
  }

  async open(target: Target, options: OpenOptions): Promise<Stream> {
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

  rotate(reason: string): void {
    this.#link.sendControl({ type: "rotate", reason });
  }

  drain(retryAfterMs: number): void {
    if (this.closed) return;
    this.#link.sendControl({ type: "drain", retryAfterMs });
    this.#session.drain();
    this.#watcher.onLeaving?.();
  }

  close(deadlineMs: number): Promise<void> {
    const closed = this.#session.close(deadlineMs);
    this.#watcher.onLeaving?.();
    return closed;
  }

  destroy(reason: Error): void {
    this.#session.destroy(reason);
  }
}

// ── windows ─────────────────────────────────────────────────────────────────────────────────────────────────────────

/**
 * The first window of a stream when memory is short, bytes. It is also the most that an unread stream costs at each
 * end.
 */
const SMALL_WINDOW = 16 * 1024;

/** The first windows of both ends of a session: `--initial-window`, and less where memory is short. */
export function firstWindows({ initialWindow }: ServerOptions): {
  readonly initialWindow: number;
  readonly freshWindow: number;
} {
  return { initialWindow: Math.min(SMALL_WINDOW, initialWindow), freshWindow: initialWindow };
}

/** The bounds of a session whose link an agent, or another server, has dialled. */
export function sessionOptions(options: ServerOptions, pool: MemoryAccount): Partial<SessionOptions> {
  const { maxWindow, sessionBudget: budget, maxStreams } = options;
  return { ...firstWindows(options), maxWindow, budget, maxStreams, pool };
}
