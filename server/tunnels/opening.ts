import type { Duplex } from "node:stream";
import { formatTarget, type Target } from "../../shared/address/target.ts";
import { deferred } from "../../shared/basics/promises.ts";
import { CulvertError } from "../../shared/outcomes.ts";
import { encodeOpen, type OpenAnswer, parseAnswer, receiveHead } from "../../shared/wire/stream-head.ts";
import { YamuxError } from "../../shared/yamux/errors.ts";
import type { Session } from "../../shared/yamux/session.ts";
import type { Stream } from "../../shared/yamux/stream.ts";

export interface OpenOptions {
  /** This server's name for the connection, for the logs of both ends. */
  readonly id: string;
  /** The whole time until an answer must be there. */
  readonly timeoutMs: number;
  /** What the agent gets of it for its dial. */
  readonly dialTimeoutMs: number;
  /** An agent that has not taken the stream by then is as good as gone. */
  readonly ackTimeoutMs: number;
  /** Could another agent take it? Asked while this one's link waits for a new connection. */
  hasAlternative(): boolean;
  /** The next tunnel that takes streams, whichever it is: the agent that is waited for, or one that has come meanwhile. */
  whenAvailable(): Cancellable<unknown>;
  /** Given: the agent is asked for the times of its steps. */
  readonly watch?: OpeningWatcher;
}

/** Who looks on while a stream is opened. */
export interface OpeningWatcher {
  /** The agent has taken the stream. */
  onAcknowledged(): void;
  onAnswer(answer: OpenAnswer): void;
}

/** What an opening sees of the link below its session. */
export interface OpeningLink {
  readonly suspended: boolean;
  probe(withinMs: number): void;
}

/** Something under way that can be given up. After `cancel`, `promise` rejects with that reason. */
export interface Cancellable<T> {
  readonly promise: Promise<T>;
  cancel(reason: CulvertError): void;
}

/** The agent's own timeout has to arrive before ours, or the caller hears of the agent instead of the target. */
const ANSWER_MARGIN_MS = 100;

/** An agent that took no stream has so long for a sign of life; one that is only busy gives it. */
const PROBE_MS = 5_000;

/**
 * One stream from SYN to answer.
 *
 * ```
 *  opened ── ACK within ackTimeoutMs ──▶ acknowledged ── answer within timeoutMs ──▶ handed out
 *     └─ else agent_timeout, another agent may be tried   └─ else agent_timeout, final
 * ```
 *
 * While the link is suspended the request goes to another agent at once, where there is one or one comes; else it waits
 * for the resume.
 */
export class Opening implements Cancellable<Stream> {
  readonly #session: Session;
  readonly #target: Target;
  readonly #link: OpeningLink;
  readonly #agentId: string;
  readonly #options: OpenOptions;
  readonly #startedAt = performance.now();
  readonly #opened = deferred<Stream>();
  #stream: Stream | undefined;
  #stopReading: () => void = ignore;
  #timer: NodeJS.Timeout | undefined;
  /** Looks out for another agent while the link is suspended. */
  #lookout: Cancellable<unknown> | undefined;
  #settled = false;

  constructor(session: Session, link: OpeningLink, target: Target, agentId: string, options: OpenOptions) {
    this.#session = session;
    this.#link = link;
    this.#target = target;
    this.#agentId = agentId;
    this.#options = options;
    try {
      this.#begin(target, options);
    } catch (error) {
      this.#fail(refusedHere(error, agentId));
    }
  }

  get promise(): Promise<Stream> {
    return this.#opened.promise;
  }

  #begin(target: Target, { id, timeoutMs, dialTimeoutMs, ackTimeoutMs, watch }: OpenOptions): void {
    const dialMs = Math.max(1, Math.min(dialTimeoutMs, timeoutMs - ANSWER_MARGIN_MS));
    const timed = watch !== undefined;
    const stream = this.#session.open(
      encodeOpen({ kind: "connect", target, timeoutMs: dialMs, id, ...(timed && { timed }) }),
    );
    this.#stream = stream;
    // For the stream's whole life: between answer and splice nobody else listens.
    stream.on("error", ignore);
    stream.onAcknowledged = this.#onAcknowledged;
    this.#stopReading = receiveHead(stream, this.#onHead, this.#onLost);
    this.#timer = setTimeout(this.#onTimeout, Math.min(ackTimeoutMs, timeoutMs));
  }

  /** The caller has left, or nobody waits any more: the reset makes the agent give up its dial. */
  cancel(reason: CulvertError): void {
    this.#fail(reason);
  }

  /** The link has lost its connection. */
  onSuspended(): void {
    if (!this.#settled && !this.#moveOn()) this.#lookOut();
  }

  /** Another agent is asked at once, where there is one. */
  #moveOn(): boolean {
    const movesOn = this.#link.suspended && this.#options.hasAlternative();
    if (movesOn) this.#fail(this.#connectionLost());
    return movesOn;
  }

  #lookOut(): void {
    const lookout = this.#options.whenAvailable();
    this.#lookout = lookout;
    lookout.promise.then(() => this.#moveOn(), ignore);
  }

  readonly #onAcknowledged = (): void => {
    if (this.#settled) return;
    this.#options.watch?.onAcknowledged();
    this.#waitOn();
  };

  /** Until the whole time is over. */
  #waitOn(): void {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(this.#onTimeout, Math.max(1, this.#leftMs));
  }

  get #leftMs(): number {
    return this.#options.timeoutMs - (performance.now() - this.#startedAt);
  }

  readonly #onTimeout = (): void => {
    const agent = `agent "${this.#agentId}"`;
    const acknowledged = this.#stream?.acknowledged ?? false;
    if (this.#link.suspended) {
      if (this.#leftMs > 1) this.#waitOn();
      else this.#fail(this.#connectionLost());
      return;
    }
    // A process that stands still, or a path that swallows everything: the next CONNECTs should not have to find out.
    if (!acknowledged) this.#link.probe(PROBE_MS);
    const sentence = acknowledged
      ? `${agent} took the request for ${formatTarget(this.#target)} but did not answer in time`
      : `${agent} does not respond: check its process and the path to it`;
    this.#fail(new CulvertError("agent_timeout", sentence, { acknowledged }));
  };

  readonly #onLost = (error: Error): void => this.#fail(this.#lost(error));

  readonly #onHead = (json: Buffer): void => {
    try {
      const answer = parseAnswer(json);
      this.#options.watch?.onAnswer(answer);
      if (answer.ok) this.#succeed();
      else this.#fail(new CulvertError(answer.error, answer.detail || `the agent answered ${answer.error}`));
    } catch (failure) {
      this.#fail(
        failure instanceof CulvertError ? failure : new CulvertError("internal", "a broken answer of the agent"),
      );
    }
  };

  /** The stream has ended before the answer. */
  #lost(error: Error): CulvertError {
    if (error instanceof CulvertError && error.code !== "agent_lost") return error;
    const agent = `agent "${this.#agentId}"`;
    const code = (error as NodeJS.ErrnoException).code;
    if (code === "ECONNRESET" && this.#stream?.acknowledged === false) {
      // RST in place of ACK: it takes no more streams (yamux: "Opening a stream").
      if (this.#session.draining)
        return new CulvertError("draining", `${agent} is going away: try again`, { cause: error });
      return new CulvertError("agent_exhausted", `${agent} takes no more connections: try again, or add agents`, {
        cause: error,
      });
    }
    if (code === "ESESSION") return this.#connectionLost(error);
    return new CulvertError("agent_lost", `${agent} broke off before its answer`, { cause: error });
  }

  #connectionLost(cause?: Error): CulvertError {
    return new CulvertError("agent_lost", `the connection to agent "${this.#agentId}" was lost`, { cause });
  }

  #succeed(): void {
    if (this.#settled || this.#stream === undefined) return;
    this.#settle();
    this.#opened.resolve(this.#stream);
  }

  #fail(error: CulvertError): void {
    if (this.#settled) return;
    this.#settle();
    this.#stream?.destroy();
    this.#opened.reject(error);
  }

  #settle(): void {
    this.#settled = true;
    clearTimeout(this.#timer);
    this.#stopReading();
    this.#lookout?.cancel(new CulvertError("internal", "nobody waits for another agent any more"));
    if (this.#stream !== undefined) this.#stream.onAcknowledged = undefined;
  }
}

/** The session would not even open a stream. */
function refusedHere(error: unknown, agentId: string): CulvertError {
  if (error instanceof CulvertError) return error;
  if (!(error instanceof YamuxError)) throw error;
  switch (error.reason) {
    case "overloaded":
      return new CulvertError(
        "overloaded",
        `the tunnel of agent "${agentId}" carries as many connections as it may (--max-streams)`,
        { cause: error },
      );
    case "pool_full":
      return new CulvertError(
        "overloaded",
        "this server is at its memory limit, and nothing of it can be freed (--memory-limit, or limits.memory): try again",
        {
          cause: error,
        },
      );
    case "go_away":
    case "exhausted":
      return new CulvertError("draining", `agent "${agentId}" is going away: try again`, { cause: error });
    default:
      return new CulvertError("agent_lost", `the connection to agent "${agentId}" was lost`, { cause: error });
  }
}

/** A Duplex in a splice that is a stream of a lost session, not one that its target reset. */
export function isSessionLost(stream: Duplex): boolean {
  return (stream.errored as NodeJS.ErrnoException | null)?.code === "ESESSION";
}

/** Of such a one: one end has closed its session, and nothing has gone wrong. */
export function isClosedInOrder(stream: Duplex): boolean {
  return stream.errored?.cause === undefined;
}

function ignore(): void {}
