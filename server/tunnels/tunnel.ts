import type { Target } from "../../shared/address/target.ts";
import { deferred } from "../../shared/basics/promises.ts";
import { OrderedSet } from "../../shared/basics/queue.ts";
import { UNBOUNDED } from "../../shared/limits/memory-account.ts";
import type { Link } from "../../shared/link/link.ts";
import type { LinkWatcher } from "../../shared/link/link-options.ts";
import { type OutcomeCode, toCulvertError } from "../../shared/outcomes.ts";
import type { PeerIdentity } from "../../shared/tls/identity.ts";
import type { SessionOptions } from "../../shared/yamux/options.ts";
import { Session } from "../../shared/yamux/session.ts";
import type { Stream } from "../../shared/yamux/stream.ts";
import type { Transport } from "../../shared/yamux/transport.ts";
import { DialRecord } from "./dial-record.ts";
import { Opening, type OpenOptions } from "./opening.ts";
import type { Pickable } from "./pick.ts";
import { ProbeRoom, Probes } from "./probes.ts";

/** What a tunnel asks of a link. */
export type TunnelLink = Pick<
  Link,
  keyof Transport | "id" | "remote" | "suspended" | "unacknowledged" | "sendControl" | "probe" | "watch"
>;

/** Who is at the other end. */
export interface Agent {
  readonly agentId: string;
  /** Random for each start of the agent's process. */
  readonly instance: string;
  /** The credential's subject: an agent id belongs to it. */
  readonly identity: string;
  /** What its certificate said at its first connection, if that is its credential; `Tunnel.peer`: at the last. */
  readonly peer: PeerIdentity | undefined;
  readonly software: string;
  /** It only measures, and serves nobody. */
  readonly probe: boolean;
}

/** What a tunnel stands on, beside its link. */
export interface TunnelGround {
  /** What the session runs on, if it is not the link itself: the inner TLS over it. */
  readonly pipe?: Transport;
  /** Of its cluster. */
  readonly probes?: ProbeRoom;
}

/** How long the answer to a ping is waited for, ms. Whoever asks later has a ping of his own. */
export const ROUND_TRIP_WITHIN_MS = 1_000;

let uses = 0;

/** Events of a tunnel and its link. */
export type TunnelWatcher = Omit<LinkWatcher, "onControl">;

/** One connected agent: who it is, and the session that reaches it. Ends when its link ends. */
export class Tunnel implements Pickable {
  readonly agent: Agent;
  readonly connectedAt = new Date();
  /** Resolves when the session is over, with the reason if it was not closed in order. */
  readonly closedWith: Promise<Error | undefined>;
  readonly #link: TunnelLink;
  readonly #session: Session;
  readonly #openings = new OrderedSet<Opening>();
  readonly #dials = new DialRecord();
  #peer: PeerIdentity | undefined;
  #asked = false;
  #lastUsed = 0;
  /** Of the ping that is under way on the present carrier. */
  #roundTrip: { readonly askedAt: number; readonly measured: Promise<number | undefined> } | undefined;
  /** Its agent is to prove anew that it is trusted: why, and by when. */
  #owed: { readonly reason: string; readonly timer: NodeJS.Timeout } | undefined;
  /** A new carrier is a handshake of its own, and so a proof; under inner TLS it is none. */
  readonly #provesByResume: boolean;

  constructor(
    agent: Agent,
    link: TunnelLink,
    watcher: TunnelWatcher = {},
    options: Partial<SessionOptions> = {},
    { pipe = link, probes: room = new ProbeRoom() }: TunnelGround = {},
  ) {
    this.agent = agent;
    this.#peer = agent.peer;
    this.#link = link;
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
        this.#roundTrip = undefined; // a ping of before may have gone another way
        if (this.#owed !== undefined) this.rotate(this.#owed.reason); // what was said before was lost with the carrier
      },
      onClosed: () => {
        clearTimeout(this.#owed?.timer);
        watcher.onClosed?.();
      },
      onControl: (message) => {
        if (message.type === "drain") this.#asked = true;
      },
    });
    const probes = new Probes(room, options.pool ?? UNBOUNDED);
    this.#session = new Session(
      "server",
      pipe,
      { onStream: (stream) => probes.take(stream), onClosed: closed.resolve },
      options,
    );
  }

  /** What the certificate says by which its agent has proved itself last, if that is its credential. */
  get peer(): PeerIdentity | undefined {
    return this.#peer;
  }

  get id(): string {
    return this.#link.id;
  }

  get remote(): string {
    return this.#link.remote;
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

  /** The least round trip of the last few pings of the session, which come as its streams need them, ms. */
  get rttMs(): number {
    return this.#session.rttMs;
  }

  /** Streams reset because the tunnel held more than twice its budget. */
  get resetForMemory(): number {
    return this.#session.resetForMemory;
  }

  /** How long the way to the agent and back takes now, ms; `undefined`: there is none. Who asks meanwhile shares one ping. */
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

  /** It takes no callers' streams: it only measures, or it is leaving. */
  get draining(): boolean {
    return this.agent.probe || this.leaving;
  }

  /** Its agent has asked for nothing new, or one end has said go-away. */
  get leaving(): boolean {
    return this.#asked || this.#session.draining;
  }

  /** Its link has no carrier now: streams stand still. */
  get suspended(): boolean {
    return this.#link.suspended;
  }

  /** Its agent is to come with a credential once more, by now `withinMs`, or the tunnel ends. */
  mustProve(reason: string, withinMs: number): void {
    this.#owed ??= { reason, timer: setTimeout(() => this.#onUnproven(), withinMs).unref() };
    this.rotate(reason);
  }

  #onUnproven(): void {
    if (this.suspended && this.#provesByResume) return; // it proves itself when it comes back, or ends with its grace
    this.destroy(new Error(`${this.#owed?.reason}, and its agent has not come back to prove itself`));
  }

  /** It has: by this certificate, if it was one. */
  proven(peer = this.#peer): void {
    this.#peer = peer;
    clearTimeout(this.#owed?.timer);
    this.#owed = undefined;
  }

  /** Bytes kept for the link's next carrier. */
  get replayBytes(): number {
    return this.#link.unacknowledged;
  }

  get closed(): boolean {
    return this.#session.closed;
  }

  get rests(): boolean {
    return this.#dials.rests;
  }

  get lastUsed(): number {
    return this.#lastUsed;
  }

  /** Asks the agent for `target`; resolves when the agent has answered that it is connected. */
  open(target: Target, options: OpenOptions): Promise<Stream> {
    this.#lastUsed = ++uses;
    const opening = new Opening(this.#session, this.#link, target, this.agent.agentId, options);
    this.#openings.add(opening);
    opening.promise.then(
      () => {
        this.#openings.delete(opening);
        this.#dials.succeeded();
      },
      (error) => {
        this.#openings.delete(opening);
        if (isFailedDial(error)) this.#dials.failed();
      },
    );
    return opening.promise;
  }

  /** Asks the agent for a new connection; its streams notice nothing. */
  rotate(reason: string): void {
    this.#link.sendControl({ type: "rotate", reason });
  }

  /** Nothing new here: the agent goes elsewhere, and open streams live on. */
  drain(retryAfterMs: number): void {
    if (this.closed) return;
    this.#link.sendControl({ type: "drain", retryAfterMs });
    this.#session.drain();
  }

  /** Drains, waits for the streams up to `deadlineMs`, then ends the link. */
  close(deadlineMs: number): Promise<void> {
    return this.#session.close(deadlineMs);
  }

  destroy(reason: Error): void {
    this.#session.destroy(reason);
  }
}

/** The agent has answered that it could not reach the target. */
const FAILED_DIALS: ReadonlySet<OutcomeCode> = new Set([
  ...(["dial_refused", "dial_unreachable", "dial_name", "dial_reset", "dial_timeout"] as const),
]);

function isFailedDial(error: unknown): boolean {
  return FAILED_DIALS.has(toCulvertError(error).code);
}
