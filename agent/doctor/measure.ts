import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { setTimeout as sleep } from "node:timers/promises";
import { seconds } from "../../shared/net/seconds.ts";
import { CulvertError } from "../../shared/outcomes.ts";
import {
  encodeProbe,
  MAX_PROBE_MS,
  type ProbeBegun,
  type ProbeMode,
  readProbeAnswer,
  readProbeTotal,
} from "../../shared/wire/probe.ts";
import type { Session } from "../../shared/yamux/session.ts";
import type { Stream } from "../../shared/yamux/stream.ts";
import { type Passed, StepFailed } from "./steps.ts";

export const PINGS = 20;
const PING_BYTES = 32;
const BLOCK_BYTES = 64 * 1024;
/** A path that holds one small message back for so long is no path for `kubectl exec`, ms. */
const PATIENCE_MS = 5_000;

/** The server answers no probes: it is an older one, or others measure now. */
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
export async function openProbe(session: Session, mode: ProbeMode): Promise<{ stream: Stream } & ProbeBegun> {
  for (let tries = 1; ; tries++) {
    try {
      return await askForProbe(session, mode);
    } catch (error) {
      const backInMs = error instanceof NoProbes ? error.retryAfterMs : undefined;
      if (backInMs === undefined || tries === TRIES) throw error;
      await sleep(Math.min(backInMs, LONGEST_WAIT_MS));
    }
  }
}

async function askForProbe(session: Session, mode: ProbeMode): Promise<{ stream: Stream } & ProbeBegun> {
  const stream = session.open(encodeProbe(mode));
  stream.on("error", ignore);
  try {
    return { stream, ...(await inTime(readProbeAnswer(stream), "the server's answer to a probe")) };
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
    throw lost(error);
  }
}

/** Round trips one after the other, as keys in a shell make them. */
export async function pingpong(stream: Stream): Promise<Passed<undefined>> {
  const times: number[] = [];
  try {
    for (let sent = 0; sent < PINGS; sent++) {
      const startedAt = performance.now();
      stream.write(randomBytes(PING_BYTES));
      await inTime(bytesOf(stream, PING_BYTES), "a round trip");
      times.push(performance.now() - startedAt);
    }
  } catch (error) {
    throw lost(error);
  } finally {
    stream.destroy();
  }
  times.sort((one, other) => one - other);
  const [median = 0, most = 0] = [times[PINGS / 2], times.at(-1)];
  return {
    value: undefined,
    detail: `${PINGS} round trips: half within ${median.toFixed(1)} ms, all ${most.toFixed(1)} ms`,
  };
}

/** How fast bytes come to the server: those that have arrived there count, not those that we have got rid of. */
export async function upload(session: Session, forMs: number): Promise<Passed<undefined>> {
  const { stream } = await openProbe(session, "sink");
  try {
    const block = randomBytes(BLOCK_BYTES);
    const startedAt = performance.now();
    while (performance.now() - startedAt < forMs) {
      if (!stream.write(block)) await inTime(once(stream, "drain"), "64 KiB");
    }
    stream.end();
    const bytes = await inTime(readProbeTotal(stream), "the last bytes", MAX_PROBE_MS - forMs);
    return { value: undefined, detail: rate(bytes, performance.now() - startedAt) };
  } catch (error) {
    throw lost(error);
  } finally {
    stream.destroy();
  }
}

export async function download(session: Session, forMs: number): Promise<Passed<undefined>> {
  const { stream } = await openProbe(session, "source");
  try {
    let bytes = 0;
    const startedAt = performance.now();
    stream.on("data", (chunk: Buffer) => {
      bytes += chunk.length;
    });
    await inTime(once(stream, "data"), "the first bytes");
    await Promise.race([new Promise((resolve) => setTimeout(resolve, forMs)), once(stream, "close").then(endedEarly)]);
    return { value: undefined, detail: rate(bytes, performance.now() - startedAt) };
  } catch (error) {
    throw lost(error);
  } finally {
    stream.destroy();
  }
}

function endedEarly(): never {
  throw new Error("the stream ended");
}

/** As people who run networks say it. */
function rate(bytes: number, ms: number): string {
  const megabits = (bytes * 8) / 1e6 / (ms / 1_000);
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

async function inTime<T>(promise: Promise<T>, what: string, withinMs = PATIENCE_MS): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Late(`${what} took longer than ${seconds(withinMs)}`)), withinMs);
  });
  try {
    return await Promise.race([promise, late]);
  } finally {
    clearTimeout(timer);
  }
}

function lost(error: unknown): Error {
  if (error instanceof StepFailed || error instanceof NoProbes) return error;
  const { message } = error as Error;
  const culprit = error instanceof Late ? "held_back" : "lost";
  return new StepFailed({ culprit, by: message }, message, { cause: error });
}

function ignore(): void {}
