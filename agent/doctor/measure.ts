import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { setTimeout as sleep } from "node:timers/promises";
import { untilAborted } from "../../shared/basics/promises.ts";
import { seconds } from "../../shared/basics/text.ts";
import { CulvertError } from "../../shared/outcomes.ts";
import { LinkRefused } from "../../shared/wire/handshake.ts";
import {
  encodeProbe,
  MAX_PROBE_MS,
  type ProbeBegun,
  type ProbeMode,
  readProbeAnswer,
} from "../../shared/wire/stream-head.ts";
import { Session } from "../../shared/yamux/session.ts";
import type { Stream } from "../../shared/yamux/stream.ts";
import type { OpenedLink } from "../uplink/open-link.ts";
import { PacedPipe } from "./paced-pipe.ts";
import { type Passed, StepFailed } from "./report.ts";

const PINGS = 20;
const PING_BYTES = 32;
/** Then the last one still comes before the server ends the probe. */
const LONGEST_ECHO_MS = MAX_PROBE_MS / 2;
const BLOCK_BYTES = 64 * 1024;
/** A path that holds one small message back for this time, ms, is no path for `kubectl exec`. */
const PATIENCE_MS = 5_000;
/**
 * If much was sent and nothing of it arrives for this time, ms, the path holds it back: the first TLS record has 16
 * KiB, which a line of 17 kbit/s brings within this time. The server ends a probe later.
 */
const STALL_MS = 8_000;

/** The server answers no probes: it is an older one, or others measure now; or it has ended this one. */
export class NoProbes extends Error {
  readonly retryAfterMs: number | undefined;

  constructor(message: string, { cause, retryAfterMs }: { cause: unknown; retryAfterMs?: number | undefined }) {
    super(message, { cause });
    this.retryAfterMs = retryAfterMs;
  }
}

/** Others measure their way to the server too, and each is done within seconds. */
const TRIES = 6;
const LONGEST_WAIT_MS = 5_000;

/** A probe that the server has taken, which may be later. Rejects with `NoProbes`, or with what ended it. */
export async function openProbe(tunnel: ProbeTunnel, mode: ProbeMode): Promise<{ stream: Stream } & ProbeBegun> {
  for (let tries = 1; ; tries++) {
    try {
      return await askForProbe(tunnel, mode);
    } catch (error) {
      const backInMs = error instanceof NoProbes ? error.retryAfterMs : undefined;
      if (backInMs === undefined || tries === TRIES) throw error;
      await sleep(Math.min(backInMs, LONGEST_WAIT_MS));
    }
  }
}

async function askForProbe(tunnel: ProbeTunnel, mode: ProbeMode): Promise<{ stream: Stream } & ProbeBegun> {
  const stream = tunnel.session.open(encodeProbe(mode));
  stream.on("error", ignore);
  const answer = readProbeAnswer(stream);
  answer.catch(ignore); // it may come later than we wait
  try {
    // Where a slow line still has what was sent before, the question comes after it.
    await whileArriving(tunnel.pipe, Promise.race([answer, tunnel.pipe.allArrived()]));
    return { stream, ...(await inTime(answer, "the server's answer to a probe")) };
  } catch (error) {
    const acknowledged = stream.acknowledged;
    stream.destroy();
    if (error instanceof CulvertError) {
      throw new NoProbes(error.message, { cause: error, retryAfterMs: error.retryAfterMs });
    }
    // RST in place of ACK: agents opened no streams there.
    if ((error as NodeJS.ErrnoException).code === "ECONNRESET" && !acknowledged) {
      throw new NoProbes("this server answers no probes: it is of an older version", { cause: error });
    }
    throw lost(error, tunnel);
  }
}

/**
 * Round trips one after the other, as keys in a shell make them; fewer on a long way, where all would take too long.
 */
export async function pingpong(tunnel: ProbeTunnel, stream: Stream): Promise<Passed<undefined>> {
  const times: number[] = [];
  const begunAt = performance.now();
  try {
    while (times.length < PINGS && performance.now() - begunAt < LONGEST_ECHO_MS) {
      const startedAt = performance.now();
      stream.write(randomBytes(PING_BYTES));
      await inTime(bytesOf(stream, PING_BYTES), "a round trip");
      times.push(performance.now() - startedAt);
    }
  } catch (error) {
    throw lost(error, tunnel);
  } finally {
    stream.destroy();
  }
  times.sort((one, other) => one - other);
  const [median = 0, most = 0] = [times[times.length >> 1], times.at(-1)];
  return {
    value: undefined,
    detail: `${times.length} round trips: half within ${median.toFixed(1)} ms, all ${most.toFixed(1)} ms`,
  };
}

/** How fast bytes come to the server: those that have arrived there count, not those that we have got rid of. */
export async function upload(tunnel: ProbeTunnel, forMs: number): Promise<Passed<undefined>> {
  const { session, pipe } = tunnel;
  const { stream } = await openProbe(tunnel, "sink");
  try {
    const arrivedBefore = pipe.arrived;
    const startedAt = performance.now();
    pour(stream);
    await whileArriving(pipe, elapsed(forMs, stream));
    stream.destroy();
    await whileArriving(pipe, pipe.allArrived());
    if (session.closed) throw stream.errored ?? new Error("the tunnel ended");
    return { value: undefined, detail: rate(pipe.arrived - arrivedBefore, performance.now() - startedAt) };
  } catch (error) {
    throw lost(error, tunnel);
  } finally {
    stream.destroy();
  }
}

/** Until the stream is destroyed. */
function pour(stream: Stream): void {
  const block = randomBytes(BLOCK_BYTES);
  const more = (): void => {
    while (!stream.destroyed && stream.write(block));
  };
  stream.on("drain", more);
  more();
}

/** The rate between the first bytes that arrive and the last: how long the first were under way is unknown. */
export async function download(tunnel: ProbeTunnel, forMs: number): Promise<Passed<undefined>> {
  const { stream } = await openProbe(tunnel, "source");
  try {
    let bytes = 0;
    let lastAt = 0;
    stream.on("data", (chunk: Buffer) => {
      bytes += chunk.length;
      lastAt = performance.now();
    });
    await inTime(once(stream, "data"), "the first bytes", STALL_MS);
    const [startedAt, before] = [lastAt, bytes];
    await elapsed(forMs, stream);
    if (bytes === before && !stream.destroyed) await inTime(once(stream, "data"), "the next bytes", STALL_MS);
    if (tunnel.session.closed) throw stream.errored ?? new Error("the tunnel ended");
    return { value: undefined, detail: rate(bytes - before, lastAt - startedAt) };
  } catch (error) {
    throw lost(error, tunnel);
  } finally {
    stream.destroy();
  }
}

/** Or until the stream is over: the server has its own bound of a probe, and what has come until then counts. */
async function elapsed(ms: number, stream: Stream): Promise<void> {
  const over = new AbortController();
  const onClose = (): void => over.abort();
  stream.once("close", onClose);
  if (stream.closed) onClose();
  await sleep(ms, undefined, { signal: over.signal }).catch(ignore);
  stream.off("close", onClose);
}

/** As people who run networks say it. */
function rate(bytes: number, ms: number): string {
  const megabits = bytes === 0 ? 0 : (bytes * 8) / 1e6 / (ms / 1_000);
  return `${megabits < 10 ? megabits.toPrecision(2) : megabits.toFixed(0)} Mbit/s`;
}

/** Takes what there is: `readable` comes at once, again and again, where less than was asked for is left lying. */
async function bytesOf(stream: Stream, length: number): Promise<void> {
  for (let left = length; left > 0; ) {
    const chunk = stream.read() as Buffer | null;
    if (chunk === null) await once(stream, "readable");
    else left -= chunk.length;
  }
}

class Late extends Error {}

/** Rejects with `Late` where nothing of what is under way arrives for too long, however slow it is. */
async function whileArriving<T>(pipe: PacedPipe, promise: Promise<T>): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const stalled = new Promise<never>((_, reject) => {
    const look = (): void => {
      const { stalledMs } = pipe;
      if (stalledMs < STALL_MS) timer = setTimeout(look, STALL_MS - stalledMs);
      else reject(new Late(`nothing of what is sent has arrived for ${seconds(STALL_MS)}`));
    };
    look();
  });
  try {
    return await Promise.race([promise, stalled]);
  } finally {
    clearTimeout(timer);
  }
}

async function inTime<T>(promise: Promise<T>, what: string, withinMs = PATIENCE_MS): Promise<T> {
  const limit = AbortSignal.timeout(withinMs);
  return await untilAborted(promise, limit).catch((error) => {
    throw limit.aborted ? new Late(`${what} took longer than ${seconds(withinMs)}`) : error;
  });
}

/** What ends a probe is the server's doing, as long as the tunnel stands. */
function lost(error: unknown, { session }: ProbeTunnel): Error {
  const { message } = error as Error;
  const refusal = refusalIn(error);
  if (refusal !== undefined) {
    return new StepFailed({ culprit: "ended_by_server", by: refusal.reason }, message, { cause: error });
  }
  if (session.closed) return new StepFailed({ culprit: "lost", by: message }, message, { cause: error });
  if (error instanceof Late) return new StepFailed({ culprit: "held_back", by: message }, message, { cause: error });
  return new NoProbes(`the server has ended the measurement: ${message}`, { cause: error });
}

/** The close code and reason by which the server has ended the tunnel: nobody in between did. */
function refusalIn(error: unknown): LinkRefused | undefined {
  for (let cause = error; cause instanceof Error; cause = cause.cause) if (cause instanceof LinkRefused) return cause;
  return undefined;
}

function ignore(): void {}

/** Time for the last bytes, ms. */
const CLOSE_MS = 1_000;

/** What is measured. */
export interface ProbeTunnel {
  readonly session: Session;
  /** Below the session. */
  readonly pipe: PacedPipe;
}

/** A tunnel that carries probes and no connections of callers. */
export function probeTunnel({ link, pipe: whole, welcome }: OpenedLink): ProbeTunnel & { close(): Promise<void> } {
  const pipe = new PacedPipe(whole, link);
  const session = new Session(
    "client",
    pipe,
    // Of what the server opens before it has read our drain: RST in place of ACK has it try another agent.
    { onStream: (stream) => stream.on("error", () => {}).destroy(), onClosed: () => {} },
    { initialWindow: welcome.initialWindow, freshWindow: welcome.freshWindow ?? 0 },
  );
  // For a server that does not know `probe` in a hello yet.
  link.sendControl({ type: "drain", retryAfterMs: 0 });
  return { session, pipe, close: () => session.close(CLOSE_MS) };
}
