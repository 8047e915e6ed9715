import type { EventEmitter } from "node:events";
import { constants } from "node:http2";
import type { Duplex } from "node:stream";
import { formatTarget, type Target } from "../shared/address/target.ts";
import { resetSocket } from "../shared/relay/reset.ts";
import { splice } from "../shared/relay/splice.ts";
import type { SidecarContext } from "./context.ts";
import type { Dialer } from "./dialer.ts";
import { Refusal, toRefusal } from "./refusal.ts";

/**
 * Dials the target for a client. `client` closes when nobody waits for it any more. Rejects with a `Refusal`, which is
 * counted and logged. `open`: how the target is dialled, if not directly.
 */
export async function dialFor(
  client: EventEmitter,
  target: Target,
  context: SidecarContext,
  open = (dialer: Dialer, signal: AbortSignal): Promise<Duplex> => dialer.dial(target, signal),
): Promise<Duplex> {
  const { options, metrics, dialer, throttledLog } = context;
  const startedAt = performance.now();
  const over = new AbortController();
  const cancel = (): void => over.abort(CLIENT_GONE);
  const timer = setTimeout(() => over.abort(LATE), options.connectTimeoutMs);
  client.on("close", cancel);
  try {
    const stream = await open(dialer, over.signal);
    metrics.dialled(performance.now() - startedAt);
    return stream;
  } catch (error) {
    const refusal = toRefusal(error);
    metrics.dialFailed(refusal.kind);
    const fields = { target: formatTarget(target), kind: refusal.kind, reason: refusal.message };
    throttledLog.write(refusal.status === 500 ? "error" : "warn", fields, "dial failed", { kind: refusal.kind });
    throw refusal;
  } finally {
    clearTimeout(timer);
    client.off("close", cancel);
  }
}

const CLIENT_GONE = new Refusal(499, "connection_terminated", "the client closed its connection before it was open");
const LATE = new Refusal(504, "connection_timeout", "no connection was opened in time (--connect-timeout)");

/** Carries bytes between a client and its target until both directions have ended. */
export async function relay(client: Duplex, stream: Duplex, target: Target, context: SidecarContext): Promise<void> {
  const startedAt = performance.now();
  stream.allowHalfOpen = true; // a target that has ended its side may still read
  const { error, ...totals } = await splice(client, stream, {
    stallTimeoutMs: context.options.stallTimeoutMs,
    corkCaller: true,
    corkTarget: true,
    resetCaller: () => resetSocket(client),
    resetTarget: () => resetTunnel(stream),
  });
  context.metrics.carried(totals.bytesUp, totals.bytesDown);
  const durationMs = Math.round(performance.now() - startedAt);
  const fields = { target: formatTarget(target), durationMs, ...totals };
  context.log.info({ ...fields, ...(error !== undefined && { reason: error.message }) }, "connection closed");
}

/** Ends a tunnel so that its target sees a failure and not a clean end. */
export function resetTunnel(stream: Duplex): void {
  if ("rstCode" in stream && "close" in stream) {
    (stream.close as (code: number) => void).call(stream, constants.NGHTTP2_CONNECT_ERROR);
    stream.destroy();
  } else resetSocket(stream);
}
