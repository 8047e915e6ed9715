import assert from "node:assert/strict";
import { setTimeout as sleep } from "node:timers/promises";
import { median, percentile } from "../bench/stats.ts";
import type { Connection } from "./caller.ts";

/** Two ways to the same target: through the server that is attacked, and through one that nobody attacks. */
export interface Ways {
  connect(): Promise<Connection>;
  connectCalm(): Promise<Connection>;
}

export interface MeasureOptions {
  readonly windows?: number;
  readonly windowMs?: number;
  /** Pause between two echoes, ms. */
  readonly everyMs?: number;
  /** Pause between two new CONNECTs, ms. */
  readonly connectEveryMs?: number;
}

/** How many times as long an echo, or a CONNECT with its first echo, may take through the attacked server. */
const MOST_RATIO = 2;
const QUESTION = Buffer.alloc(32, "q");

/** ms through each of both servers, in the same window of time. */
class Window {
  readonly attacked: number[] = [];
  readonly calm: number[] = [];

  /** The percentile through the attacked server as a multiple of that through the calm one. */
  get ratio(): number {
    return percentile(this.attacked, 99) / percentile(this.calm, 99);
  }
}

/**
 * Measures what an honest tenant sees during an attack against what it sees, at the same time, through an idle server:
 * short echoes by turns through two connections that stand, and new CONNECTs by turns beside them. What else the machine
 * does meanwhile hits both.
 *
 * In each window the percentiles of both are compared. The median of the windows' ratios has to be at most 2: a noisy
 * window changes no median, and an attack that holds up the server's event loop is in every window. Returns what was seen,
 * for a diagnostic line.
 */
export async function assertUnharmed(ways: Ways, options: MeasureOptions = {}): Promise<string> {
  const { windows: count = 16, windowMs = 500, everyMs = 2, connectEveryMs = 50 } = options;
  await using attacked = await ways.connect();
  await using calm = await ways.connectCalm();
  for (const { status, reason } of [attacked, calm]) assert.equal(status, 200, reason);
  const stop = new AbortController();
  const connects = new Connects(ways, connectEveryMs, stop.signal);
  const echoes: Window[] = [];
  try {
    for (let number = 0; number < count; number++) {
      const window = new Window();
      const until = performance.now() + windowMs;
      while (performance.now() < until) {
        window.attacked.push(await echoMs(attacked));
        window.calm.push(await echoMs(calm));
        await sleep(everyMs);
      }
      echoes.push(window);
      connects.nextWindow();
    }
  } finally {
    stop.abort();
    await connects.over;
  }
  const seen = `${shown("echo", echoes)}; ${shown("CONNECT", connects.windows)}`;
  assert.deepEqual(connects.failures, [], `each CONNECT of the honest tenant is answered: ${seen}`);
  for (const windows of [echoes, connects.windows]) {
    const ratio = ratioOf(windows);
    assert.ok(ratio <= MOST_RATIO, `p99 is ${ratio.toFixed(2)} × that of an idle server: ${seen}`);
  }
  return seen;
}

/** New CONNECTs, each with its first echo, through the one server and the other by turns. */
class Connects {
  /** Those in which both have had some. */
  readonly windows: Window[] = [];
  /** CONNECTs that were refused, cut or not answered, each with its reason. */
  readonly failures: string[] = [];
  readonly over: Promise<void>;
  #window = new Window();

  constructor(ways: Ways, everyMs: number, signal: AbortSignal) {
    this.over = this.#run(ways, everyMs, signal);
  }

  nextWindow(): void {
    const { attacked, calm } = this.#window;
    if (attacked.length === 0 || calm.length === 0) return; // goes on as one
    this.windows.push(this.#window);
    this.#window = new Window();
  }

  async #run(ways: Ways, everyMs: number, signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      await this.#one(ways.connect, "attacked");
      await this.#one(ways.connectCalm, "calm");
      await sleep(everyMs, undefined, { signal }).catch(() => {});
    }
  }

  async #one(connect: Ways["connect"], to: "attacked" | "calm"): Promise<void> {
    const begun = performance.now();
    try {
      await using connection = await connect();
      if (connection.status !== 200) throw new Error(`${connection.status} ${connection.reason}`);
      await echoMs(connection);
      this.#window[to].push(performance.now() - begun);
    } catch (error) {
      this.failures.push(`${to}: ${(error as Error).message}`);
    }
  }
}

function ratioOf(windows: readonly Window[]): number {
  return median(windows.map(({ ratio }) => ratio));
}

function shown(what: string, windows: readonly Window[]): string {
  const p99 = (side: "attacked" | "calm") => median(windows.map((window) => percentile(window[side], 99))).toFixed(1);
  return `${what} p99 ${p99("calm")} ms idle, ${p99("attacked")} ms attacked, ${ratioOf(windows).toFixed(2)} ×`;
}

async function echoMs(connection: Connection, deadlineMs = 30_000): Promise<number> {
  const started = performance.now();
  await connection.send(QUESTION);
  const answer = await connection.readBytes(QUESTION.length, deadlineMs);
  assert.ok(answer.equals(QUESTION), "the echo is what was sent");
  return performance.now() - started;
}
