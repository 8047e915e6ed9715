import { setTimeout as sleep } from "node:timers/promises";
import { waitFor } from "../../harness/wait.ts";
import { expect, type Stage } from "../check.ts";
import type { Culvert } from "../world/culvert.ts";
import { nothingLeftBehind } from "./leftovers.ts";

/** One cut of the agent's connection, while something is under way. */
export interface Cut {
  /** As soon as this part of it is done: 0 to 1. */
  readonly at: number;
  /** How long every new connection of the agent is refused, too. */
  readonly awayMs?: number;
}

const NOTICED_MS = 10_000;
const RESUMED_MS = 10_000;
const NODE_METRICS = "/api/v1/nodes/stand-in/proxy/metrics";

/** How long a rendering of /metrics is given again. */
const RENDERED_MS = 1_000;

/** The work's result. It ends with all connections that it has had. */
export async function whileCut<T>(
  stage: Stage,
  cuts: readonly Cut[],
  work: Promise<T>,
  done: () => number,
): Promise<T> {
  const result = await besideCuts(stage, cuts, work, done);
  await nothingLeftBehind(stage.world.culvert);
  return result;
}

/** The work's result. Each cut is made while the work goes on, and suspends the link; it resumes, every time. */
export async function besideCuts<T>(
  stage: Stage,
  cuts: readonly Cut[],
  work: Promise<T>,
  done: () => number,
): Promise<T> {
  const before = await resumes(stage.world.culvert);
  let over = false;
  const settled = () => {
    over = true;
  };
  work.then(settled, settled);
  const result = await besideChatter(stage, async () => {
    for (const { at, awayMs = 0 } of cuts) {
      await waitFor(() => over || done() >= at, { deadlineMs: 60_000, what: `${at * 100} % of the work` });
      // If it has failed, with its own error.
      if (over) await work;
      expect(!over, `work that goes on at ${at * 100} %`, "its end");
      await cut(stage, awayMs);
    }
    return await work;
  });
  await sleep(RENDERED_MS);
  const resumed = (await resumes(stage.world.culvert)) - before;
  expect(resumed >= cuts.length, `${cuts.length} resumes at the server`, String(resumed));
  return result;
}

/**
 * While the act lasts, the agent sends a line every 20 ms: who sends nothing is not told of a reset. Each comes, in
 * order.
 */
async function besideChatter<T>({ kubectl }: Stage, act: () => Promise<T>): Promise<T> {
  await using chatter = kubectl.start(["logs", "-f", "stand-in", "-c", "steady-3000"]);
  await chatter.waitForLog(/line 1$/);
  const result = await act();
  expect(chatter.running, "logs -f that goes on", chatter.tail());
  const wrong = chatter.log.findIndex((line, i) => line !== `line ${i + 1}`);
  expect(wrong === -1, `line ${wrong + 1} of the log`, chatter.log[wrong] ?? "");
  return result;
}

/**
 * A request of kube-apiserver meanwhile, over a connection that it keeps, waits and is answered. It makes the server
 * send something, too.
 */
async function cut({ world, kubectl }: Stage, awayMs: number): Promise<void> {
  const { culvert, network } = world;
  await network.reset();
  const asked = kubectl.must(["get", "--raw", NODE_METRICS]);
  asked.catch(() => {}); // it is awaited below
  try {
    await waitFor(async () => (await culvert.resuming()) === 1, {
      ...{ deadlineMs: NOTICED_MS, everyMs: 20, what: "a suspended link" },
    });
    await sleep(awayMs);
  } finally {
    await network.close();
  }
  const resumed = async () => (await culvert.resuming()) === 0;
  await waitFor(resumed, { deadlineMs: RESUMED_MS, everyMs: 20, what: "a link that is resumed" });
  const { stdout } = await asked;
  expect(stdout.includes("# TYPE "), "metrics of the node", stdout);
}

/**
 * How many times the server has taken a new connection for a link whose connection was cut. An agent may be back before
 * the server has noticed the cut; then the link has moved.
 */
export async function resumes(culvert: Culvert): Promise<number> {
  const metrics = await culvert.scrapeServer();
  const count = (result: string) => metrics.sum("culvert_server_link_resumes_total", { result });
  return count("resumed") + count("moved");
}
