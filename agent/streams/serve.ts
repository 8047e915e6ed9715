import { isIP, type Socket } from "node:net";
import { formatTarget, type Target } from "../../shared/address/target.ts";
import { type Lookup, lookupAll, TargetDial } from "../../shared/dial/dial-target.ts";
import { CulvertError, toCulvertError } from "../../shared/outcomes.ts";
import { resetSocket } from "../../shared/relay/reset.ts";
import { splice } from "../../shared/relay/splice.ts";
import type { SpanAttributes, TraceSpan } from "../../shared/tracing/tracing.ts";
import { encodeAnswer, type OpenRequest, readOpen } from "../../shared/wire/stream-head.ts";
import type { Stream } from "../../shared/yamux/stream.ts";
import type { AgentContext } from "../context/context.ts";
import { DialSteps, type Permit } from "./dial-steps.ts";
import type { TargetPolicy } from "./policy.ts";

/** From the stream's opening to its whole head: the head comes with the SYN, so this only bounds a broken server. */
const HEAD_TIMEOUT_MS = 5_000;
/** How long a refused stream may linger until the server has ended its side, too. */
const REFUSED_LINGER_MS = 5_000;

/**
 * Dials targets that the policy allows, a bounded number at once: each dial holds a file descriptor before anybody has
 * answered.
 */
export class TargetDials {
  readonly #context: AgentContext;
  readonly #policy: TargetPolicy;
  readonly #lookup: Lookup;
  #pending = 0;

  constructor(context: AgentContext, policy: TargetPolicy, lookup = lookupAll) {
    this.#context = context;
    this.#policy = policy;
    this.#lookup = lookup;
  }

  get pending(): number {
    return this.#pending;
  }

  /** Resolves and dials; a caller that goes away meanwhile takes the dial with it. The server may ask for less time. */
  async dial(stream: Stream, { target, timeoutMs }: OpenRequest, steps?: DialSteps): Promise<Socket> {
    const { options, files } = this.#context;
    files.requireRoom("agent_exhausted");
    if (this.#pending >= options.maxStreams) {
      throw new CulvertError("agent_exhausted", `the agent is dialling ${this.#pending} targets already, its limit`);
    }
    this.#pending++;
    const permit: Permit = (address, port) => this.#policy.refusal({ host: target.host, address, port });
    const dialling = new TargetDial({
      target,
      timeoutMs: Math.min(timeoutMs, options.dialTimeoutMs),
      permit: steps?.permit(permit) ?? permit,
      lookup: steps?.lookup(this.#lookup) ?? this.#lookup,
    });
    const onClose = (): void => dialling.cancel();
    stream.on("close", onClose);
    // A stream that was reset between its head and here has said "close" before anybody listened.
    if (stream.destroyed) dialling.cancel();
    try {
      const socket = await dialling.promise;
      if (stream.destroyed) {
        resetSocket(socket);
        throw callerGone();
      }
      return socket;
    } finally {
      stream.off("close", onClose);
      this.#pending--;
    }
  }
}

/**
 * One stream, from its opening to its last byte. Never rejects.
 *
 * ```
 *  ACK ─▶ read head ─▶ resolve, policy, dial ─▶ answer {"ok":true} ─▶ splice ─▶ one log line
 *              └──────────────┴───────────────▶ answer {"error"}  ─▶ end
 * ```
 */
export async function serve(
  stream: Stream,
  context: AgentContext,
  dials: TargetDials,
  headTimeoutMs = HEAD_TIMEOUT_MS,
): Promise<void> {
  const { options, metrics, log } = context;
  stream.on("error", ignore);
  // The ACK goes out at once: it tells the server that the agent is alive and dials.
  stream.accept();
  metrics.streamOpened();
  const openedAt = performance.now();
  let id: string | undefined;
  let target: Target | undefined;
  let dialledAt: number | undefined;
  let dialMs: number | undefined;
  let span: TraceSpan | undefined;
  let steps: DialSteps | undefined;
  try {
    const request = await readOpen(stream, headTimeoutMs);
    ({ id, target } = request);
    dialledAt = performance.now();
    span = spanOf(request, openedAt, context);
    if (request.timed === true || span !== undefined) steps = new DialSteps();
    const socket = await dials.dial(stream, request, steps);
    dialMs = performance.now() - dialledAt;
    metrics.dialFinished("ok", dialMs);
    const address = reachedAddress(target, socket);
    const times = request.timed && steps?.times();
    stream.write(encodeAnswer({ ok: true, address, ...(times && { times }), ...(span && { traced: true }) }));
    endSpan(span, steps, { "server.address": target.host, "server.port": target.port, "culvert.dialled": address });
    const totals = await splice(stream, socket, {
      stallTimeoutMs: options.stallTimeoutMs,
      resetTarget: () => resetSocket(socket),
      corkTarget: true,
      memory: context.memory,
    });
    metrics.streamFinished({ outcome: "ok", bytesUp: totals.bytesUp, bytesDown: totals.bytesDown });
    if (log.isLevelEnabled("debug")) {
      const { error, ...ends } = totals;
      const took = { dialMs: rounded(dialMs), durationMs: rounded(performance.now() - openedAt) };
      log.debug({ id, target: formatTarget(target), ...took, ...ends, reason: error?.message }, "stream finished");
    }
  } catch (error) {
    const refusal = stream.destroyed ? callerGone(error) : toCulvertError(error);
    refuse(stream, refusal);
    if (dialMs === undefined) endSpan(span, steps, { "error.type": refusal.code }, refusal.message);
    metrics.streamFinished({ outcome: refusal.code });
    if (dialledAt !== undefined && dialMs === undefined)
      metrics.dialFinished(refusal.code, performance.now() - dialledAt);
    const where = target === undefined ? undefined : formatTarget(target);
    const durationMs = rounded(performance.now() - openedAt);
    const line = { id, target: where, code: refusal.code, reason: refusal.message, durationMs };
    if (refusal.code === "internal")
      context.throttledLog.write("error", { ...line, err: refusal.cause ?? refusal }, "stream refused");
    else log.debug(line, "stream refused");
  }
}

/** A span of the agent's own, where the server keeps one of the CONNECT. */
function spanOf({ traceparent }: OpenRequest, atMs: number, context: AgentContext): TraceSpan | undefined {
  if (traceparent === undefined) return undefined;
  const span = context.tracing()?.begin("dial for the server", atMs, traceparent);
  return span?.isKept === true ? span : undefined;
}

function endSpan(
  span: TraceSpan | undefined,
  steps: DialSteps | undefined,
  attributes: SpanAttributes,
  failure?: string,
): void {
  if (span === undefined) return;
  const now = performance.now();
  steps?.addTo(span, now);
  span.end(now, attributes, failure);
}

/** Answers and ends cleanly, so that the answer arrives; a reset could overtake it. */
function refuse(stream: Stream, refusal: CulvertError): void {
  if (stream.destroyed) return;
  stream.end(encodeAnswer({ ok: false, error: refusal.code, detail: refusal.message }));
  // Later bytes of the caller are dropped, so that its end is seen. A caller that never ends is reset.
  stream.resume();
  const timer = setTimeout(() => stream.reset(), REFUSED_LINGER_MS).unref();
  stream.once("close", () => clearTimeout(timer));
}

function callerGone(cause?: unknown): CulvertError {
  return new CulvertError("caller_gone", "the caller went away before the target answered", { cause });
}

/** A literal address is the one that was dialled: no need to ask the kernel. */
function reachedAddress(target: Target, socket: Socket): string {
  if (isIP(target.host) !== 0) return formatTarget(target);
  return formatTarget({ host: socket.remoteAddress ?? "", port: socket.remotePort ?? 0 });
}

function rounded(ms: number): number {
  return Math.round(ms * 10) / 10;
}

function ignore(): void {}
