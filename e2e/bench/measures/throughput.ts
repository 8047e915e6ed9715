import { setTimeout as sleep } from "node:timers/promises";
import { cpuSeconds } from "../../harness/proc.ts";
import { type Bench, contenders } from "../bench.ts";
import type { Contender } from "../contenders.ts";
import type { Flow } from "../dial-spec.ts";
import { atLeast, atMost, Rounds, type Row } from "../rows.ts";

const WARM_UP_MS = 400;
const STREAMS = [1, 32] as const;
const PROCESSES = ["near", "between", "far"] as const;

/** Bytes per second through each contender, and the CPU time that each of its processes pays for a gigabyte. */
export async function throughput(bench: Bench): Promise<Row[]> {
  const rows: Row[] = [];
  for (const streams of STREAMS) {
    for (const flow of ["down", "up"] as const) {
      const rounds = new Rounds();
      for (let round = 0; round < bench.settings.rounds; round++) {
        bench.say(`throughput ${flow}, ${streams} streams, round ${round + 1}`);
        const alone = round === 0 ? (["direct"] as const) : [];
        for (const contender of contenders(bench, round, "pipe", "corked", ...alone)) {
          await sampleFlow(bench, contender, flow, streams, rounds);
        }
      }
      rows.push(...toRows(rounds, flow, streams));
    }
  }
  return rows;
}

function toRows(rounds: Rounds, flow: Flow, streams: number): Row[] {
  const what = `${flow}, ${streams} ${streams === 1 ? "stream" : "streams"}`;
  const rate = rounds.medians("MB/s");
  const near = rounds.medians("near");
  const far = rounds.medians("far");
  return [
    {
      group: "throughput",
      label: what,
      unit: "MB/s",
      figures: rate,
      goals: [atLeast(rate, 1, "pipe"), atLeast(rate, 0.85, "corked")],
    },
    {
      group: "throughput",
      label: `${what}: server`,
      unit: "CPU s/GB",
      figures: near,
      goals: [atMost(near, 1, "pipe")],
    },
    { group: "throughput", label: `${what}: agent`, unit: "CPU s/GB", figures: far, goals: [atMost(far, 1, "pipe")] },
  ];
}

/** Adds `MB/s`, and the CPU s/GB of each process under its name and as a `sum`. */
export async function sampleFlow(
  bench: Bench,
  contender: Contender,
  flow: Flow,
  streams: number,
  rounds: Rounds,
): Promise<void> {
  const { bulkLoad, bulkTargets } = bench.around;
  const received = () => (flow === "down" ? bulkLoad.call("received", {}) : bulkTargets.call("received", {}));
  const pids = PROCESSES.flatMap((process) => {
    const pid = contender[process];
    return pid === undefined ? [] : [{ process, pid }];
  });
  const cpu = () => pids.map(({ pid }) => cpuSeconds(pid));
  await bulkLoad.call("bulk", { dial: contender.dial(flow === "down" ? "source" : "sink"), flow, streams });
  await sleep(WARM_UP_MS);
  const [before, cpuBefore] = [await received(), cpu()];
  await sleep(bench.settings.seconds * 1000);
  const [after, cpuAfter] = [await received(), cpu()];
  await bulkLoad.call("release", {});
  const bytes = after.bytes - before.bytes;
  const costs = cpuAfter.map((seconds, i) => (seconds - (cpuBefore[i] ?? 0)) / (bytes / 1e9));
  rounds.add(contender.name, "MB/s", bytes / 1e6 / ((after.atMs - before.atMs) / 1000));
  for (const [i, { process }] of pids.entries()) rounds.add(contender.name, process, costs[i] ?? Number.NaN);
  const sum = costs.reduce((total, cost) => total + cost, 0);
  if (pids.length > 1) rounds.add(contender.name, "sum", sum);
  await settle();
}

/** Bytes that are under way when a sample ends must not run into the next one. */
function settle(): Promise<void> {
  return sleep(150);
}
