import type { Target } from "../../shared/address/target.ts";
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
      const stream = await ask(tunnel, { target, id, deadline, ackMs, hasOther });
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
 * One stream from SYN to answer. If it rejects, the stream is destroyed.
 *
 * ```
 *  opened ────── ACK ──────▶ accepted ── answer by the deadline ──▶ resolved
 *     └─ silence: another server may be asked   └─ else final
 * ```
 */
async function ask({ serverId, session, link }: ServerTunnel, question: Question): Promise<Stream> {
  const { target, id, deadline, ackMs, hasOther } = question;
  const leftMs = (): number => Math.max(1, deadline - performance.now());
  const stream = openOn(session, serverId, { target, timeoutMs: leftMs() - ANSWER_MARGIN_MS, id });
  // It stays for the stream's whole life: between answer and splice there is no other listener.
  stream.on("error", ignore);
  let timer: NodeJS.Timeout | undefined;
  try {
    const answer = await new Promise<Buffer>((resolve, reject) => {
      const onSilence = (): void => {
        link.probe(PROBE_MS);
        if (leftMs() <= 1 || hasOther()) reject(lost(serverId, "does not respond"));
        else timer = setTimeout(onSilence, Math.min(ackMs, leftMs())); // another one may come meanwhile
      };
      const onLate = (): void =>
        reject(lost(serverId, "took the request but did not answer in time", { acknowledged: true }));
      stream.onAcknowledged = () => {
        clearTimeout(timer);
        timer = setTimeout(onLate, leftMs());
      };
      timer = setTimeout(onSilence, Math.min(ackMs, leftMs()));
      receiveHead(stream, resolve, (error) => reject(endedEarly(error, stream, serverId)));
    });
    requireDestinationAnswer(answer);
    return stream;
  } catch (error) {
    stream.destroy();
    throw error;
  } finally {
    clearTimeout(timer);
    stream.onAcknowledged = undefined;
  }
}

function openOn(session: Session, serverId: string, head: Parameters<typeof encodeDestination>[0]): Stream {
  try {
    return session.open(encodeDestination(head));
  } catch (error) {
    if (!(error instanceof YamuxError)) throw error;
    if (error.reason !== "overloaded" && error.reason !== "pool_full")
      throw lost(serverId, "is going away", { cause: error });
    const sentence = "the tunnel carries as many streams, or holds as much, as it may (--max-streams, --memory-limit)";
    throw new CulvertError("overloaded", sentence, { cause: error });
  }
}

/** The stream has ended before the answer. */
function endedEarly(error: Error, stream: Stream, serverId: string): CulvertError {
  if ((error as NodeJS.ErrnoException).code === "ECONNRESET" && !stream.acknowledged) {
    const sentence = `server "${serverId}" takes no more connections of this agent: try again`;
    return new CulvertError("overloaded", sentence, { cause: error });
  }
  if (error instanceof CulvertError && error.code === "internal") return error;
  return lost(serverId, "was lost before its answer", { cause: error });
}

function lost(serverId: string, what: string, options: { acknowledged?: boolean; cause?: unknown } = {}): CulvertError {
  return new CulvertError("server_lost", `server "${serverId}" ${what}`, options);
}

function ignore(): void {}
