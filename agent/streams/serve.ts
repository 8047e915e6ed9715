import { isIP, type Socket } from "node:net";
import { formatTarget, type Target } from "../../shared/address/target.ts";
import { type Lookup, type LookupDone, TargetDial } from "../../shared/dial/dial-target.ts";
import { CulvertError, type OutcomeCode, toCulvertError } from "../../shared/outcomes.ts";
import { resetSocket } from "../../shared/relay/reset.ts";
import { splice } from "../../shared/relay/splice.ts";
import type { SpliceAccount } from "../../shared/relay/splice-memory.ts";
import type { Logger } from "../../shared/runtime/logger.ts";
import type { ThrottledLog } from "../../shared/runtime/throttled-log.ts";
import { encodeAnswer, readOpen } from "../../shared/wire/stream-head.ts";
import type { Stream } from "../../shared/yamux/stream.ts";
import type { TargetPolicy } from "./policy.ts";

/** What is known of a stream when it is over. */
export interface StreamEnd {
  readonly outcome: OutcomeCode | "ok";
  readonly bytesUp?: number | undefined;
  readonly bytesDown?: number | undefined;
}

/** What is counted of streams. */
export interface StreamMetrics {
  /** A stream was accepted. One `streamFinished` follows each call. */
  streamOpened(): void;
  streamFinished(end: StreamEnd): void;
  /** A target was reached, or not. */
  dialFinished(outcome: OutcomeCode | "ok", dialMs: number): void;
}

/** What serving a stream takes; the same for all streams of an agent. */
export interface ServeDeps {
  readonly policy: Pick<TargetPolicy, "refusal">;
  readonly dials: DialSlots;
  readonly metrics: StreamMetrics;
  readonly log: Logger;
  /** Of streams that should not be: a broken server may open any number. */
  readonly throttledLog: Pick<ThrottledLog, "write">;
  /** The longest a dial may take; the server may ask for less. */
  readonly dialTimeoutMs: number;
  readonly stallTimeoutMs: number;
  /** What all streams may hold. */
  readonly memory: SpliceAccount;
  /** From the stream's opening to its whole head: the head comes with the SYN, so this only bounds a broken server. */
  readonly headTimeoutMs?: number;
  readonly lookup: Lookup;
  /** Throws `agent_exhausted` when this process has hardly a file descriptor left. */
  requireFiles(): void;
}

const HEAD_TIMEOUT_MS = 5_000;
/** How long a refused stream may linger until the server has ended its side, too. */
const REFUSED_LINGER_MS = 5_000;

/** How many targets may be on the way at once: each dial holds a file descriptor before anybody has answered. */
export class DialSlots {
  readonly #most: number;
  #taken = 0;

  constructor(most: number) {
    this.#most = most;
  }

  get taken(): number {
    return this.#taken;
  }

  take(): void {
    if (this.#taken >= this.#most) {
      throw new CulvertError("agent_exhausted", `the agent is dialling ${this.#taken} targets already, its limit`);
    }
    this.#taken++;
  }

  giveBack(): void {
    this.#taken--;
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
export async function serve(stream: Stream, deps: ServeDeps): Promise<void> {
  const { metrics, log, throttledLog } = deps;
  stream.on("error", ignore);
  // The ACK goes out at once: it tells the server that the agent is alive and dials.
  stream.accept();
  metrics.streamOpened();
  const openedAt = performance.now();
  let id: string | undefined;
  let target: Target | undefined;
  let dialledAt: number | undefined;
  let dialMs: number | undefined;
  try {
    const request = await readOpen(stream, deps.headTimeoutMs ?? HEAD_TIMEOUT_MS);
    ({ id, target } = request);
    dialledAt = performance.now();
    const names = request.timed ? new TimedLookup(deps.lookup) : undefined;
    const timeoutMs = Math.min(request.timeoutMs, deps.dialTimeoutMs);
    const socket = await dialFor(stream, target, timeoutMs, deps, names?.lookup ?? deps.lookup);
    dialMs = performance.now() - dialledAt;
    metrics.dialFinished("ok", dialMs);
    const times = names && { dnsMs: names.tookMs, dialMs: dialMs - names.tookMs };
    stream.write(encodeAnswer({ ok: true, address: reachedAddress(target, socket), ...(times && { times }) }));
    const totals = await splice(stream, socket, {
      stallTimeoutMs: deps.stallTimeoutMs,
      resetTarget: () => resetSocket(socket),
      corkTarget: true,
      memory: deps.memory,
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
    metrics.streamFinished({ outcome: refusal.code });
    if (dialledAt !== undefined && dialMs === undefined)
      metrics.dialFinished(refusal.code, performance.now() - dialledAt);
    const where = target === undefined ? undefined : formatTarget(target);
    const durationMs = rounded(performance.now() - openedAt);
    const line = { id, target: where, code: refusal.code, reason: refusal.message, durationMs };
    if (refusal.code === "internal")
      throttledLog.write("error", { ...line, err: refusal.cause ?? refusal }, "stream refused");
    else log.debug(line, "stream refused");
  }
}

/** Resolves and dials; a caller that goes away meanwhile takes the dial with it. */
async function dialFor(
  stream: Stream,
  target: Target,
  timeoutMs: number,
  deps: ServeDeps,
  lookup: Lookup,
): Promise<Socket> {
  const { policy, dials } = deps;
  deps.requireFiles();
  dials.take();
  const dialling = new TargetDial({
    target,
    timeoutMs,
    permit: (address, port) => policy.refusal({ host: target.host, address, port }),
    lookup,
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
    dials.giveBack();
  }
}

/** Answers and ends cleanly, so that the answer arrives; a reset could overtake it. */
function refuse(stream: Stream, refusal: CulvertError): void {
  if (stream.destroyed) return;
  stream.end(encodeAnswer({ ok: false, error: refusal.code, detail: refusal.message }));
  // What the caller still sends is dropped, so that its end is seen. A caller that never ends is reset.
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

/** A lookup that says how long it took, for a server that asks. */
class TimedLookup {
  /** 0 until a name was asked for. */
  tookMs = 0;
  readonly lookup: Lookup;

  constructor(lookup: Lookup) {
    this.lookup = (host, done, timeoutMs) => {
      const askedAt = performance.now();
      const onFound: LookupDone = (error, addresses) => {
        this.tookMs = performance.now() - askedAt;
        done(error, addresses);
      };
      lookup(host, onFound, timeoutMs);
    };
  }
}
