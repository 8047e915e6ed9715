import { setTimeout as sleep } from "node:timers/promises";
import type { Bench } from "../bench.ts";
import { BenchChild } from "../child.ts";
import type { Culvert } from "../culvert.ts";
import type { DialSpec, Flow } from "../dial-spec.ts";
import type { EchoResult } from "../load.ts";
import type { PathMethods } from "../path.ts";
import { above, below, type Row } from "../rows.ts";

/** 10 Mbit/s and a modem's buffer. */
const LINE = { bytesPerSecond: 1_250_000, queueBytes: 262_144, rttMs: 40 };
const ECHO_LIMIT_MS = 2 * LINE.rttMs + 60;
const LINE_SHARE = 85;
const ECHO_PACE_MS = 5;
/** An echo takes a tenth of a second here, and a p99 wants hundreds. */
const LEAST_ECHO_SECONDS = 20;

const LONG_RTT_MS = 100;
/** Bytes that may be unacknowledged (--replay-buffer), once each round trip. */
const LONG_BOUND_MB = (16 * 1_048_576) / 1e6 / (LONG_RTT_MS / 1000);
const LONG_SHARE = 0.6;
/** The path must carry more than culvert could fill, or it is the path that is measured. */
const PATH_MB = 160;
/** Windows and what is in flight have found their size. */
const WARM_UP_MS = 4000;

/** As seen from the agent: what goes down to callers goes up its line. */
const FLOWS = { down: "agent uploads", up: "agent downloads" } as const satisfies Record<Flow, string>;

/** A narrow line with a buffer in front of it, and a long line without a limit. */
export async function slowLine(bench: Bench): Promise<Row[]> {
  if (!bench.culvert) return [];
  const { startCulvertPair } = await import("../culvert.ts");
  await using path = new BenchChild<PathMethods>("path.ts");
  await using pair = await startCulvertPair(bench.around.ports, { withAgent: false });
  return [...(await bufferbloat(bench, pair, path)), ...(await longLine(bench, pair, path))];
}

async function bufferbloat(bench: Bench, pair: Culvert, path: BenchChild<PathMethods>): Promise<Row[]> {
  const { port } = await path.call("slow", { port: pair.site.agentPort, ...LINE });
  await using _agent = await pair.site.startAgent({}, { agentPort: port, ignoreStdout: true });
  const row = (label: string, unit: string, value: number, goals: (figures: Row["figures"]) => Row["goals"]): Row => {
    const figures = { culvert: value };
    return { group: "slow-line", label: `10 Mbit/s, ${label}`, unit, figures, goals: goals(figures) };
  };
  bench.say("slow line: echo alone");
  const alone = await echo(bench, pair);
  const rows = [row("echo p99 alone", "ms", alone.p99Ms, () => [])];
  for (const flow of ["down", "up"] as const) {
    bench.say(`slow line: echo while the ${FLOWS[flow]}`);
    const [{ p50Ms, p99Ms }, rate] = await besideBulk(bench, pair.dial.bind(pair), flow, () => echo(bench, pair));
    const share = (100 * rate * 1e6) / LINE.bytesPerSecond;
    rows.push(
      row(`echo p50, ${FLOWS[flow]}`, "ms", p50Ms, () => []),
      row(`echo p99, ${FLOWS[flow]}`, "ms", p99Ms, (figures) => [
        below(figures, ECHO_LIMIT_MS, "ms (2× round trip + 60)"),
      ]),
      row(`${FLOWS[flow]}: share of the line`, "%", share, (figures) => [above(figures, LINE_SHARE, "%")]),
    );
  }
  return rows;
}

async function longLine(bench: Bench, pair: Culvert, path: BenchChild<PathMethods>): Promise<Row[]> {
  const { seconds, rounds } = bench.settings;
  const toAgents = await path.call("long", { port: pair.site.agentPort, rttMs: LONG_RTT_MS });
  await using _agent = await pair.site.startAgent({}, { agentPort: toAgents.port, ignoreStdout: true });
  const rows: Row[] = [];
  for (const flow of ["down", "up"] as const) {
    const target = flow === "down" ? "source" : "sink";
    bench.say(`long line: ${FLOWS[flow]}`);
    const alone = await path.call("long", { port: bench.around.ports[target], rttMs: LONG_RTT_MS });
    const sample = () => sleep(seconds * rounds * 1000);
    const [, direct] = await besideBulk(bench, () => ({ port: alone.port }), flow, sample);
    const [, culvert] = await besideBulk(bench, pair.dial.bind(pair), flow, sample);
    const figures = { culvert, direct };
    const pathGoal = above({ culvert: direct }, PATH_MB, "MB/s by the path alone");
    const goals = [above(figures, LONG_SHARE * LONG_BOUND_MB, "MB/s (0.6× 16 MiB per round trip)"), pathGoal];
    rows.push({
      group: "slow-line",
      label: `${LONG_RTT_MS} ms, 1 stream, ${FLOWS[flow]}`,
      unit: "MB/s",
      figures,
      goals,
    });
  }
  return rows;
}

/** Does something while one bulk stream runs: what it answers, and the bulk's MB/s meanwhile. */
async function besideBulk<T>(
  bench: Bench,
  dial: (target: "source" | "sink") => DialSpec,
  flow: Flow,
  action: () => Promise<T>,
): Promise<[T, number]> {
  const { bulkLoad, bulkTargets } = bench.around;
  const received = () => (flow === "down" ? bulkLoad.call("received", {}) : bulkTargets.call("received", {}));
  await bulkLoad.call("bulk", { dial: dial(flow === "down" ? "source" : "sink"), flow, streams: 1 });
  await sleep(WARM_UP_MS);
  const before = await received();
  const result = await action();
  const after = await received();
  await bulkLoad.call("release", {});
  await sleep(1000); // what is under way on such a line takes its time
  return [result, (after.bytes - before.bytes) / 1e6 / ((after.atMs - before.atMs) / 1000)];
}

function echo(bench: Bench, pair: Culvert): Promise<EchoResult> {
  const { seconds: sample, rounds } = bench.settings;
  const seconds = Math.max(LEAST_ECHO_SECONDS, sample * rounds);
  return bench.around.echoLoad.call("echo", { dial: pair.dial("echo"), seconds, paceMs: ECHO_PACE_MS });
}
