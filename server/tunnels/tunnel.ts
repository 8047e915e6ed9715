import type { Link, LinkWatcher } from "../../shared/link/link.ts";
import type { PeerIdentity } from "../../shared/net/identity.ts";
import type { Target } from "../../shared/net/target.ts";
import type { SessionOptions } from "../../shared/yamux/options.ts";
import { Session } from "../../shared/yamux/session.ts";
import type { Stream } from "../../shared/yamux/stream.ts";
import type { Transport } from "../../shared/yamux/transport.ts";
import { type Cancellable, Opening, type OpenOptions } from "./opening.ts";
import type { Pickable } from "./pick.ts";
import { Probes } from "./probes.ts";

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
  /** What its certificate says, if that is its credential. */
  readonly peer: PeerIdentity | undefined;
  readonly software: string;
}

let uses = 0;

/** Who is told what becomes of a tunnel's link. */
export type TunnelWatcher = Omit<LinkWatcher, "onControl">;

/** One connected agent: who it is, and the session that reaches it. Ends when its link ends. */
export class Tunnel implements Pickable {
  readonly agent: Agent;
  readonly connectedAt = new Date();
  /** Resolves when the session is over, with the reason if it was not closed in order. */
  readonly closedWith: Promise<Error | undefined>;
  readonly #link: TunnelLink;
  readonly #session: Session;
  readonly #openings = new Set<Opening>();
  #asked = false;
  #lastUsed = 0;
  #provenSince = performance.now();

  /** `pipe`: what the session runs on, the inner TLS over the link where there is one. */
  constructor(
    agent: Agent,
    link: TunnelLink,
    watcher: TunnelWatcher = {},
    options: Partial<SessionOptions> = {},
    pipe: Transport = link,
  ) {
    this.agent = agent;
    this.#link = link;
    let over: (reason: Error | undefined) => void = () => {};
    this.closedWith = new Promise((resolve) => {
      over = resolve;
    });
    link.watch({
      ...watcher,
      onSuspended: (cause) => {
        watcher.onSuspended?.(cause);
        for (const opening of this.#openings) opening.onSuspended();
      },
      onControl: (message) => {
        if (message.type === "drain") this.#asked = true;
      },
    });
    const probes = new Probes();
    this.#session = new Session(
      "server",
      pipe,
      { onStream: (stream) => probes.take(stream), onClosed: (reason) => over(reason) },
      options,
    );
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

  get rttMs(): number {
    return this.#session.rttMs;
  }

  /** Streams reset because the tunnel held more than twice its budget. */
  get resetForMemory(): number {
    return this.#session.resetForMemory;
  }

  /** The agent has asked for nothing new, or one end has said go-away. */
  get draining(): boolean {
    return this.#asked || this.#session.draining;
  }

  /** Its link has no carrier now: streams stand still. */
  get suspended(): boolean {
    return this.#link.suspended;
  }

  /** When its agent last proved who it is, in `performance.now()`: the handshake was not long before. */
  get provenSince(): number {
    return this.#provenSince;
  }

  /** Its agent has come with a credential once more. */
  proven(): void {
    this.#provenSince = performance.now();
  }

  /** Bytes kept for the link's next carrier. */
  get replayBytes(): number {
    return this.#link.unacknowledged;
  }

  get closed(): boolean {
    return this.#session.closed;
  }

  get lastUsed(): number {
    return this.#lastUsed;
  }

  /** Asks the agent for `target`. The stream comes when the agent has answered that it is connected. */
  open(target: Target, options: OpenOptions): Cancellable<Stream> {
    this.#lastUsed = ++uses;
    const opening = new Opening(this.#session, this.#link, target, this.agent.agentId, options);
    this.#openings.add(opening);
    const over = () => this.#openings.delete(opening);
    opening.promise.then(over, over);
    return opening;
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
