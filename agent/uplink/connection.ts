import { MAX_TIMER_MS } from "../../shared/basics/timers.ts";
import type { InnerWelcome } from "../../shared/link/inner-pipe.ts";
import type { Link } from "../../shared/link/link.ts";
import type { CarrierLost, ResumeReport } from "../../shared/link/link-events.ts";
import { GoAwayCode } from "../../shared/yamux/frame.ts";
import { Session, type SessionHandler } from "../../shared/yamux/session.ts";
import type { Stream } from "../../shared/yamux/stream.ts";
import type { AgentContext } from "../context/context.ts";
import type { OpenedLink } from "./open-link.ts";
import { type Carriers, Resumption } from "./resumption.ts";

/** Receives the events of a connection. */
export interface ConnectionOwner {
  /**
   * The server opens no new streams on this connection any more. `retryAfterMs`: the time after which the agent may
   * come back to it.
   */
  onDrain(connection: Connection, retryAfterMs: number): void;
  /** The server has announced another number of servers. */
  onServers(): void;
  /** The connection has lost its carrier, and dials another one by itself. */
  onSuspended(connection: Connection, cause: CarrierLost): void;
  onResumed(connection: Connection, resumed: ResumeReport): void;
  /** A resume reached another server than the link's own. */
  onElsewhere(connection: Connection): void;
  /** The connection gets no further carrier: it belongs to the certificate that the agent had before. */
  onDisowned(connection: Connection): void;
  onResumeFailed(connection: Connection, error: unknown): void;
  onClosed(connection: Connection, reason: Error | undefined): void;
}

/** A server that asks all its agents for new carriers gets them spread over this time, ms. */
const ROTATE_WITHIN_MS = 2_000;

/** Longest time for the last bytes to a server that drained the agent, ms; nothing waits for them. */
const LAST_BYTES_MS = 10_000;

/** A link and the session on it, as long as both last: over one carrier after the other. */
export class Connection implements SessionHandler {
  readonly link: Link;
  readonly welcome: InnerWelcome;
  readonly session: Session;
  readonly onStream: (stream: Stream) => void;
  /** How many servers there are, as this one has announced last. */
  servers: number | undefined;
  /** Why the session ended, if it ended before its owner listened. */
  endedBy: Error | undefined;
  /** TCP was refused since the last carrier, as while a server restarts. */
  wasRefused = false;
  readonly #owner: ConnectionOwner;
  readonly #resumption: Resumption;
  #rotation: NodeJS.Timeout | undefined;
  #left = false;

  constructor(opened: OpenedLink, owner: ConnectionOwner, carriers: Carriers, context: AgentContext) {
    const { link, pipe, welcome } = opened;
    const { options } = context;
    this.link = link;
    this.welcome = welcome;
    this.servers = welcome.servers;
    this.onStream = context.onStream;
    this.#owner = owner;
    this.#resumption = new Resumption(opened, carriers, context.retry, {
      onElsewhere: () => owner.onElsewhere(this),
      onDisowned: () => owner.onDisowned(this),
      onFailed: (error) => owner.onResumeFailed(this, error),
    });
    link.watch({
      onControl: (message) => {
        if (message.type === "drain") owner.onDrain(this, message.retryAfterMs);
        else if (message.type === "servers") this.#onServers(message.count);
        else if (message.type === "rotate") this.#changeCarrierIn(Math.random() * ROTATE_WITHIN_MS);
      },
      onSuspended: (cause) => {
        clearTimeout(this.#rotation);
        owner.onSuspended(this, cause);
        this.#resumption.lost();
      },
      onResumed: (resumed) => {
        owner.onResumed(this, resumed);
        this.#rotateInTime(carriers); // by what has just been learned of the path
      },
      onClosed: () => {
        clearTimeout(this.#rotation);
        this.#resumption.stop();
      },
    });
    this.session = new Session("client", pipe, this, {
      maxWindow: options.maxWindow,
      budget: options.sessionBudget,
      maxStreams: options.maxStreams,
      pool: context.memory,
      initialWindow: welcome.initialWindow,
      freshWindow: welcome.freshWindow ?? welcome.initialWindow,
    });
    this.#rotateInTime(carriers);
  }

  /** A new carrier while the old one lives: the streams notice nothing. */
  changeCarrier(): void {
    this.#resumption.begin();
  }

  /** The agent shuts down, and waits for a resume only as long as it is likely. */
  hasten(): void {
    this.#resumption.hasten();
  }

  /** How many resumes have failed, for the line that ends the search for a carrier. */
  get failedTries(): { readonly failedTries?: number } {
    const { failures } = this.#resumption;
    return failures === 0 ? {} : { failedTries: failures };
  }

  #onServers(count: number): void {
    if (this.servers === count) return;
    this.servers = count;
    this.#owner.onServers();
  }

  #rotateInTime(carriers: Carriers): void {
    const ageMs = carriers.carrierAgeMs();
    if (Number.isFinite(ageMs)) this.#changeCarrierIn(ageMs);
  }

  #changeCarrierIn(ms: number): void {
    clearTimeout(this.#rotation);
    this.#rotation = setTimeout(() => this.#resumption.begin(), Math.min(ms, MAX_TIMER_MS)).unref();
  }

  /** Ends when the streams that are open have ended, however long they take: their server has a deadline of its own. */
  leave(): void {
    if (this.#left) return;
    this.#left = true;
    this.session.drain();
    let open = 1;
    const onStreamClosed = (): void => {
      open--;
      if (open === 0) void this.session.close(LAST_BYTES_MS);
    };
    for (const stream of this.session.streams()) {
      open++;
      stream.once("close", onStreamClosed);
    }
    onStreamClosed();
  }

  /** Any other code than "normal" means that this agent violated the protocol: the session ends. */
  onGoAway(code: number): void {
    if (code === GoAwayCode.normal) this.#owner.onDrain(this, 0);
    else
      this.session.destroy(
        new Error(`the server ended the session: it found a violation of the protocol (go-away ${code})`),
      );
  }

  onClosed(reason: Error | undefined): void {
    this.endedBy = reason;
    this.#owner.onClosed(this, reason);
  }
}
