import type { Target } from "../../shared/address/target.ts";
import { deferred } from "../../shared/basics/promises.ts";
import { CulvertError, toCulvertError } from "../../shared/outcomes.ts";
import { encodeDestination, requireDestinationAnswer } from "../../shared/wire/destination-heads.ts";
import { receiveHead } from "../../shared/wire/stream-head.ts";
import { YamuxError } from "../../shared/yamux/errors.ts";
import type { Session } from "../../shared/yamux/session.ts";
import type { Stream } from "../../shared/yamux/stream.ts";

/** A tunnel to a server that takes streams to destinations. */
export interface ServerTunnel {
  readonly serverId: string;
  readonly session: Session;
  readonly link: {
    readonly suspended: boolean;
    /** Asks for a sign of life: without a byte within `withinMs` the connection is lost. */
    probe(withinMs: number): void;
  };
}

/** From an accepted connection to the last server's answer, ms: a kubelet gives up after 10 s or more. */
const OPEN_MS = 9_000;
/** A server that has not accepted a stream for this time is given up for another one, ms. */
const ACK_MS = 2_000;
/** The server's own timeout has to arrive before ours, or the log says less of the destination, ms. */
const ANSWER_MARGIN_MS = 100;
/** The connection of a server that accepted no stream is lost if nothing comes from it within this time, ms. */
const PROBE_MS = 5_000;

export interface AskTimes {
  readonly openMs: number;
  readonly ackMs: number;
}

/**
 * Asks servers for a destination until one has answered: no byte of the connection was sent, so one that is away costs
 * a retry. Rejects with the last server's refusal as a `CulvertError`.
 */
export async function openDestination(
  target: Target,
  id: string,
  tunnels: () => readonly ServerTunnel[],
  { openMs, ackMs }: AskTimes = { openMs: OPEN_MS, ackMs: ACK_MS },
): Promise<{ readonly stream: Stream; readonly serverId: string }> {
  const deadline = performance.now() + openMs;
  const tried = new Set<Session>();
  let refusal = new CulvertError("server_lost", "no server that takes connections of nodes is connected");
  for (;;) {
    const tunnel = pick(tunnels(), tried);
    if (tunnel === undefined || performance.now() >= deadline) throw refusal;
    tried.add(tunnel.session);
    const hasOther = (): boolean => pick(tunnels(), tried) !== undefined;
    try {
      const stream = await new Asking(tunnel, { target, id, deadline, ackMs, hasOther }).promise;
      return { stream, serverId: tunnel.serverId };
    } catch (error) {
      refusal = toCulvertError(error);
      if (!refusal.retryable) throw refusal;
    }
  }
}

/** The tunnel with the fewest streams. A tunnel that has lost its connection comes last: it may get another in time. */
function pick(tunnels: readonly ServerTunnel[], tried: ReadonlySet<Session>): ServerTunnel | undefined {
  const left = tunnels.filter(({ session }) => !tried.has(session) && !session.draining && !session.closed);
  return left.reduce<ServerTunnel | undefined>((best, each) => {
    if (best === undefined || (best.link.suspended && !each.link.suspended)) return each;
    if (best.link.suspended !== each.link.suspended) return best;
    return each.session.streamCount < best.session.streamCount ? each : best;
  }, undefined);
}

interface Question {
  readonly target: Target;
  readonly id: string;
  readonly deadline: number;
  readonly ackMs: number;
  /** Whether another server could be asked. */
  readonly hasOther: () => boolean;
}

/**
 * One stream from SYN to answer.
 *
 * ```
 *  opened ────── ACK ──────▶ accepted ── answer by the deadline ──▶ resolved
 *     └─ silence: another server may be asked   └─ else final
 * ```
 */
class Asking {
  readonly #tunnel: ServerTunnel;
  readonly #question: Question;
  readonly #asked = deferred<Stream>();
  readonly promise = this.#asked.promise;
  #stream: Stream | undefined;
  #timer: NodeJS.Timeout | undefined;

  constructor(tunnel: ServerTunnel, question: Question) {
    this.#tunnel = tunnel;
    this.#question = question;
    try {
      this.#begin(question);
    } catch (error) {
      this.#fail(this.#notOpened(error));
    }
  }

  #begin({ target, id, ackMs }: Question): void {
    const leftMs = this.#leftMs();
    const stream = this.#tunnel.session.open(encodeDestination({ target, timeoutMs: leftMs - ANSWER_MARGIN_MS, id }));
    this.#stream = stream;
    // It stays for the stream's whole life: between answer and splice there is no other listener.
    stream.on("error", ignore);
    stream.onAcknowledged = this.#waitForAnswer;
    receiveHead(stream, this.#onHead, this.#onLost);
    this.#timer = setTimeout(this.#onSilence, Math.min(ackMs, leftMs));
  }

  readonly #waitForAnswer = (): void => {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(this.#onLate, this.#leftMs());
  };

  readonly #onSilence = (): void => {
    const { ackMs, hasOther } = this.#question;
    this.#tunnel.link.probe(PROBE_MS);
    const leftMs = this.#leftMs();
    if (leftMs <= 1 || hasOther()) this.#fail(this.#lost("does not respond"));
    else this.#timer = setTimeout(this.#onSilence, Math.min(ackMs, leftMs)); // another one may come meanwhile
  };

  readonly #onLate = (): void => {
    this.#fail(this.#lost("took the request but did not answer in time", { acknowledged: true }));
  };

  readonly #onHead = (json: Buffer): void => {
    try {
      requireDestinationAnswer(json);
    } catch (error) {
      this.#fail(toCulvertError(error));
      return;
    }
    this.#end();
    if (this.#stream !== undefined) this.#asked.resolve(this.#stream);
  };

  /** The stream has ended before the answer. */
  readonly #onLost = (error: Error): void => {
    const code = (error as NodeJS.ErrnoException).code;
    if (code === "ECONNRESET" && this.#stream?.acknowledged === false) {
      const sentence = `server "${this.#tunnel.serverId}" takes no more connections of this agent: try again`;
      this.#fail(new CulvertError("overloaded", sentence, { cause: error }));
    } else if (error instanceof CulvertError && error.code === "internal") this.#fail(error);
    else this.#fail(this.#lost("was lost before its answer", { cause: error }));
  };

  /** The session has opened no stream. */
  #notOpened(error: unknown): CulvertError {
    if (!(error instanceof YamuxError)) return toCulvertError(error);
    if (error.reason === "overloaded" || error.reason === "pool_full") {
      const sentence =
        "the tunnel carries as many streams, or holds as much, as it may (--max-streams, --memory-limit)";
      return new CulvertError("overloaded", sentence, { cause: error });
    }
    return this.#lost("is going away", { cause: error });
  }

  #lost(what: string, options: { acknowledged?: boolean; cause?: unknown } = {}): CulvertError {
    return new CulvertError("server_lost", `server "${this.#tunnel.serverId}" ${what}`, options);
  }

  #leftMs(): number {
    return Math.max(1, this.#question.deadline - performance.now());
  }

  #fail(error: CulvertError): void {
    this.#end();
    this.#stream?.destroy();
    this.#asked.reject(error);
  }

  #end(): void {
    clearTimeout(this.#timer);
    if (this.#stream !== undefined) this.#stream.onAcknowledged = undefined;
  }
}

function ignore(): void {}
