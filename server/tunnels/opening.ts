import { formatTarget, type Target } from "../../shared/address/target.ts";
import { QueueNode } from "../../shared/basics/collections.ts";
import { Cancellation, deferred } from "../../shared/basics/promises.ts";
import { CulvertError, type OutcomeCode, toCulvertError } from "../../shared/outcomes.ts";
import { encodeOpen, parseAnswer, receiveHead } from "../../shared/wire/stream-head.ts";
import { YamuxError } from "../../shared/yamux/errors.ts";
import type { Session } from "../../shared/yamux/session.ts";
import type { Stream } from "../../shared/yamux/stream.ts";
import type { AskedStream, OpenOptions } from "./tunnel.ts";

export const LEADS_BACK =
  "the target has the address of this server's own port for callers: ask for the target behind it instead";

/** The part of a link that an opening uses. */
export interface OpeningLink {
  readonly suspended: boolean;
  /** As `Link.lastByteAt`. */
  readonly lastByteAt: number;
  /** Asks for a sign of life: without a byte within `withinMs` the connection is lost. */
  probe(withinMs: number): void;
}

/** Part of the time until the answer must be there that is left, ms. */
export function leftMs({ deadline }: AskedStream): number {
  return deadline - performance.now();
}

/** Part of the time that is left until a link has been silent for `silenceMs` since `startedAt`, ms. */
export function untilSilentMs(link: { readonly lastByteAt: number }, startedAt: number, silenceMs: number): number {
  return Math.max(startedAt, link.lastByteAt) + silenceMs - performance.now();
}

/** The agent's own timeout has to arrive before ours, or the caller reads about the agent instead of the target. */
const ANSWER_MARGIN_MS = 100;

/**
 * The connection of an agent or server that took no stream is lost if nothing comes from it within this time, ms. TCP
 * is silent for 2 s when it has lost a packet several times.
 */
export const PROBE_MS = 5_000;

/**
 * One stream from SYN to answer.
 *
 * ```
 *  opened ─────────── ACK ────────────▶ acknowledged ── answer within timeoutMs ──▶ resolved
 *     └─ silence: agent_timeout, another agent may be tried   └─ else agent_timeout, final
 * ```
 *
 * If the link is suspended, the opening fails as soon as another agent can take the stream. Until then it waits for the
 * resume.
 */
export class Opening {
  /** The place of this opening among those of its tunnel. */
  readonly place = new QueueNode<Opening>(this);
  readonly #session: Session;
  readonly #target: Target;
  readonly #link: OpeningLink;
  readonly #agentId: string;
  readonly #options: OpenOptions;
  readonly #opened = deferred<Stream>();
  /** Resolves when the agent has answered that it is connected; rejects with a `CulvertError`. */
  readonly promise = this.#opened.promise;
  readonly #startedAt = performance.now();
  #stream: Stream | undefined;
  #timer: NodeJS.Timeout | undefined;
  /** Present while another agent is waited for, because the link is suspended. */
  #lookout: Cancellation<CulvertError> | undefined;
  #isOver = false;

  constructor(session: Session, link: OpeningLink, target: Target, agentId: string, options: OpenOptions) {
    this.#session = session;
    this.#link = link;
    this.#target = target;
    this.#agentId = agentId;
    this.#options = options;
    const { cancellation } = options;
    if (cancellation.reason !== undefined) {
      this.#opened.reject(cancellation.reason);
      return;
    }
    cancellation.onCancelled = this.#onCancelled;
    try {
      this.#begin(target, options);
    } catch (error) {
      this.#fail(sessionRefusal(error, agentId));
    }
  }

  #begin(target: Target, options: OpenOptions): void {
    const { id, dialTimeoutMs, ackTimeoutMs, watch, traceparent } = options;
    const timeoutMs = leftMs(options);
    const dialMs = Math.max(1, Math.min(dialTimeoutMs, timeoutMs - ANSWER_MARGIN_MS));
    const timed = watch !== undefined;
    const stream = this.#session.open(
      encodeOpen({ kind: "connect", target, timeoutMs: dialMs, id, ...(timed && { timed }), traceparent }),
    );
    this.#stream = stream;
    // It stays for the stream's whole life: between answer and splice there is no other listener.
    stream.on("error", ignore);
    stream.onAcknowledged = this.#onAcknowledged;
    receiveHead(stream, this.#onHead, this.#onLost);
    this.#timer = setTimeout(this.#onTimeout, Math.min(ackTimeoutMs, timeoutMs));
  }

  readonly #onCancelled = (): void => this.#fail(this.#options.cancellation.reason as CulvertError);

  /** The link has lost its connection. */
  onSuspended(): void {
    if (this.#isOver || this.#failIfAlternative()) return;
    this.#lookout?.cancel(this.#connectionLost());
    this.#lookout = new Cancellation();
    this.#options.whenAvailable(this.#lookout).then(() => this.#failIfAlternative(), ignore);
  }

  #failIfAlternative(): boolean {
    const hasAlternative = this.#link.suspended && this.#options.hasAlternative();
    if (hasAlternative) this.#fail(this.#connectionLost());
    return hasAlternative;
  }

  readonly #onAcknowledged = (): void => {
    this.#options.watch?.onAcknowledged();
    this.#waitForAnswer();
  };

  #waitForAnswer(): void {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(this.#onTimeout, Math.max(1, leftMs(this.#options)));
  }

  readonly #onTimeout = (): void => {
    const agent = `agent "${this.#agentId}"`;
    const acknowledged = this.#stream?.acknowledged ?? false;
    if (this.#link.suspended) {
      if (leftMs(this.#options) > 1) this.#waitForAnswer();
      else this.#fail(this.#connectionLost());
      return;
    }
    if (!acknowledged) {
      // The process may be stopped, or the path may drop everything: the next CONNECTs should not have to wait, too.
      this.#link.probe(PROBE_MS);
      const waitMs = this.#patienceMs();
      if (waitMs > 0) {
        this.#timer = setTimeout(this.#onTimeout, waitMs);
        return;
      }
    }
    const sentence = acknowledged
      ? `${agent} took the request for ${formatTarget(this.#target)} but did not answer in time`
      : `${agent} does not respond: check its process and the path to it`;
    this.#fail(new CulvertError("agent_timeout", sentence, { acknowledged }));
  };

  /**
   * How long the agent may still take for its ACK, ms. While bytes of it come it is alive, and the ACK waits behind
   * them on a slow line. Without another agent a silence is taken for the line's, for half the time more.
   */
  #patienceMs(): number {
    const { ackTimeoutMs, hasAlternative } = this.#options;
    const silenceMs = hasAlternative() ? ackTimeoutMs : 1.5 * ackTimeoutMs;
    return Math.min(untilSilentMs(this.#link, this.#startedAt, silenceMs), leftMs(this.#options));
  }

  readonly #onLost = (error: Error): void => this.#fail(this.#lost(error));

  readonly #onHead = (json: Buffer): void => {
    try {
      const answer = parseAnswer(json);
      this.#options.watch?.onAnswer(answer);
      if (answer.ok) {
        if (this.#options.leadsBack?.(answer.address ?? "") === true) throw new CulvertError("forbidden", LEADS_BACK);
        this.#succeed();
      } else {
        const sentence = answer.detail || `the agent answered ${answer.error}`;
        this.#fail(new CulvertError(answer.error, sentence, { refusedBy: "agent" }));
      }
    } catch (failure) {
      this.#fail(toCulvertError(failure));
    }
  };

  /** The stream has ended before the answer. */
  #lost(error: Error): CulvertError {
    if (error instanceof CulvertError && error.code !== "agent_lost") return error;
    const agent = `agent "${this.#agentId}"`;
    const code = (error as NodeJS.ErrnoException).code;
    if (code === "ECONNRESET" && this.#stream?.acknowledged === false) {
      // RST in place of ACK: the agent takes no more streams (yamux: "Opening a stream").
      if (this.#session.draining)
        return new CulvertError("draining", `${agent} is going away: try again`, { cause: error });
      const sentence = `${agent} takes no more connections: try again, or add agents`;
      return new CulvertError("agent_exhausted", sentence, { cause: error });
    }
    if (code === "ESESSION") return this.#connectionLost(error);
    return new CulvertError("agent_lost", `${agent} broke off before its answer`, { cause: error });
  }

  #connectionLost(cause?: Error): CulvertError {
    return new CulvertError("agent_lost", `the connection to agent "${this.#agentId}" was lost`, { cause });
  }

  #succeed(): void {
    if (this.#isOver || this.#stream === undefined) return;
    this.#finish();
    this.#opened.resolve(this.#stream);
  }

  #fail(error: CulvertError): void {
    if (this.#isOver) return;
    this.#finish();
    this.#stream?.destroy();
    this.#opened.reject(error);
  }

  #finish(): void {
    this.#isOver = true;
    clearTimeout(this.#timer);
    this.#options.cancellation.onCancelled = undefined;
    this.#lookout?.cancel(this.#connectionLost());
    if (this.#stream !== undefined) this.#stream.onAcknowledged = undefined;
  }
}

/** Why the session opened no stream. */
export function sessionRefusal(error: unknown, agentId: string): CulvertError {
  if (error instanceof CulvertError) return error;
  if (!(error instanceof YamuxError)) throw error;
  const refusal = (code: OutcomeCode, sentence: string) => new CulvertError(code, sentence, { cause: error });
  switch (error.reason) {
    case "overloaded":
      return refusal(
        "overloaded",
        `the tunnel of agent "${agentId}" carries as many connections as it may (--max-streams)`,
      );
    case "pool_full":
      return refusal(
        "overloaded",
        "this server is at its memory limit, and nothing of it can be freed (--memory-limit, or limits.memory): try again",
      );
    case "go_away":
    case "exhausted":
      return refusal("draining", `agent "${agentId}" is going away: try again`);
    default:
      return refusal("agent_lost", `the connection to agent "${agentId}" was lost`);
  }
}

function ignore(): void {}

// ── the last dials of an agent ──────────────────────────────────────────────────────────────────────────────────────

/** Answers of an agent that could not reach the target. */
const FAILED_DIALS = new Set<OutcomeCode>([
  ...(["dial_refused", "dial_unreachable", "dial_name", "dial_reset", "dial_timeout"] as const),
]);

/** Number of failed dials in a row after which an agent rests: fewer may be those of one target that is down. */
const FAILURES = 3;
/** The first rest, ms; each further failure doubles it. */
const FIRST_REST_MS = 1_000;
const LONGEST_REST_MS = 30_000;

/**
 * The results of an agent's last dials. An agent whose own network is broken fails at once and has no streams, so that
 * it would be picked for every CONNECT of its cluster. While its dials fail it rests, and other agents are picked; a
 * dial that succeeds ends the rest.
 */
export class DialRecord {
  #failures = 0;
  #restsUntil = 0;

  /** Other agents are picked before this one. */
  get rests(): boolean {
    return performance.now() < this.#restsUntil;
  }

  succeeded(): void {
    this.#failures = 0;
    this.#restsUntil = 0;
  }

  /** Each of several concurrent dials counts, and the rest begins with the last. Other errors are not the network's. */
  failed(error: unknown): void {
    if (!FAILED_DIALS.has(toCulvertError(error).code)) return;
    this.#failures++;
    if (this.#failures < FAILURES) return;
    const restMs = FIRST_REST_MS * 2 ** (this.#failures - FAILURES);
    this.#restsUntil = performance.now() + Math.min(LONGEST_REST_MS, restMs);
  }
}
