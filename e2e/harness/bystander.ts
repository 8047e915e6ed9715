import assert from "node:assert/strict";
import { setTimeout as sleep } from "node:timers/promises";
import { median, percentile } from "../bench/stats.ts";
import type { Connection } from "./caller.ts";

/** What an honest tenant has seen of the server for a while. */
export interface Seen {
  /** Echo through a connection that stands, ms: the median over the windows of each window's percentile. */
  readonly echoP50Ms: number;
  readonly echoP99Ms: number;
  /** From the dial to the first echo of a new CONNECT, ms. */
  readonly connectMs: number;
  /** The same as of the echoes: the median over the windows of each window's percentile. */
  readonly connectP99Ms: number;
  readonly connects: number;
  /** New CONNECTs that were refused, cut or not answered, each with its reason. */
  readonly failures: readonly string[];
}

export interface MeasureOptions {
  readonly windows?: number;
  readonly windowMs?: number;
  /** Pause between two echoes, ms. */
  readonly everyMs?: number;
  /** Pause between two new CONNECTs, ms. */
  readonly connectEveryMs?: number;
  /** Most that the percentile of new CONNECTs may be of the idle one's. Without it only their median counts. */
  readonly mostConnectP99?: number;
}

const QUESTION = Buffer.alloc(32, "q");

/**
 * Measures what an honest tenant sees: a short echo again and again through one connection, and new CONNECTs beside it.
 * One noisy window of a busy machine changes no median; an attack that holds up the server's event loop is in every
 * window.
 */
export async function measure(connect: () => Promise<Connection>, options: MeasureOptions = {}): Promise<Seen> {
  const { windows = 8, windowMs = 500, everyMs = 4, connectEveryMs = 100 } = options;
  await using standing = await connect();
  assert.equal(standing.status, 200, standing.reason);
  const stop = new AbortController();
  const connecting = connectAgainAndAgain(connect, connectEveryMs, stop.signal);
  const perWindow: { readonly p50: number; readonly p99: number }[] = [];
  const connectP99s: number[] = [];
  try {
    for (let window = 0; window < windows; window++) {
      const times: number[] = [];
      const until = performance.now() + windowMs;
      while (performance.now() < until) {
        times.push(await echoMs(standing));
        await sleep(everyMs);
      }
      perWindow.push({ p50: percentile(times, 50), p99: percentile(times, 99) });
      const connects = connecting.ofWindow.splice(0);
      if (connects.length > 0) connectP99s.push(percentile(connects, 99));
    }
  } finally {
    stop.abort();
  }
  const { times, failures } = await connecting.over;
  return {
    echoP50Ms: median(perWindow.map(({ p50 }) => p50)),
    echoP99Ms: median(perWindow.map(({ p99 }) => p99)),
    connectMs: median(times),
    connectP99Ms: median(connectP99s),
    connects: times.length,
    failures,
  };
}

/** How often an honest tenant is measured until what it sees is within the bounds. */
const ATTEMPTS = 3;

/**
 * Measures an honest tenant during an attack, and compares what it sees with an idle run of the same test. A busy machine
 * may spoil a measurement, so that there are three: an attack that does harm spoils all of them. A CONNECT that fails
 * is never the machine's fault.
 */
export async function assertUnharmed(
  connect: () => Promise<Connection>,
  idle: Seen,
  options: MeasureOptions = {},
): Promise<Seen> {
  let harm: string | undefined;
  for (let attempt = 0; attempt < ATTEMPTS; attempt++) {
    const during = await measure(connect, options);
    const seen = JSON.stringify({ idle, during });
    assert.deepEqual(during.failures, [], `each CONNECT of the honest tenant is answered: ${seen}`);
    harm = harmIn(idle, during, options);
    if (harm === undefined) return during;
    harm += `: ${seen}`;
  }
  assert.fail(harm);
}

/** A new CONNECT may take three times as long as idle, and 50 ms more, which a busy machine may add. */
function harmIn(idle: Seen, during: Seen, { mostConnectP99 = Number.POSITIVE_INFINITY }: MeasureOptions) {
  if (during.echoP99Ms > 2 * idle.echoP99Ms + 5) return "echo p99 is above 2 × idle + 5 ms";
  if (during.connectMs > 3 * idle.connectMs + 50) return "new CONNECTs are slower";
  if (during.connectP99Ms > mostConnectP99 * idle.connectP99Ms) return `CONNECT p99 is above ${mostConnectP99} × idle`;
  return undefined;
}

async function echoMs(connection: Connection, deadlineMs = 30_000): Promise<number> {
  const started = performance.now();
  await connection.send(QUESTION);
  const answer = await connection.readBytes(QUESTION.length, deadlineMs);
  assert.ok(answer.equals(QUESTION), "the echo is what was sent");
  return performance.now() - started;
}

/** `ofWindow`: how long they took, for the caller to take away; `over`: all of them. */
function connectAgainAndAgain(connect: () => Promise<Connection>, everyMs: number, signal: AbortSignal) {
  const ofWindow: number[] = [];
  return { ofWindow, over: connectUntil(connect, everyMs, signal, ofWindow) };
}

async function connectUntil(
  connect: () => Promise<Connection>,
  everyMs: number,
  signal: AbortSignal,
  ofWindow: number[],
) {
  const times: number[] = [];
  const failures: string[] = [];
  while (!signal.aborted) {
    const started = performance.now();
    try {
      await using connection = await connect();
      if (connection.status !== 200) throw new Error(`${connection.status} ${connection.reason}`);
      await echoMs(connection);
      const tookMs = performance.now() - started;
      times.push(tookMs);
      ofWindow.push(tookMs);
    } catch (error) {
      failures.push((error as Error).message);
    }
    await sleep(everyMs, undefined, { signal }).catch(() => {});
  }
  return { times, failures };
}
