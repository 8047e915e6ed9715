import { setTimeout as sleep } from "node:timers/promises";
import { type Bench, contenders } from "../bench.ts";
import type { Contender } from "../contenders.ts";
import type { BenchTarget } from "../dial-spec.ts";
import { atMost, below, Rounds, type Row } from "../rows.ts";

const PACE_MS = 1;
const WARM_UP_MS = 300;
/**
 * Seconds of echo that pass before the first round: until V8 has optimised the path, its compiler takes turns on the
 * same cores.
 */
const OPTIMISED_AFTER_SECONDS = 6;

/** Other work of the tunnel while the echo is measured. */
type Beside = "idle" | "bulk download" | "stalled reader" | "stalled target";

/** The time of an echo: alone, beside a bulk download, beside somebody who does not read. */
export async function latency(bench: Bench): Promise<Row[]> {
  const rounds = new Rounds();
  bench.say("latency, warm-up");
  for (const each of contenders(bench, 0, "pipe", "corked")) {
    const dial = each.dial("echo");
    await bench.around.echoLoad.call("echo", { dial, seconds: OPTIMISED_AFTER_SECONDS, paceMs: PACE_MS });
  }
  for (let round = 0; round < bench.settings.rounds; round++) {
    bench.say(`latency, round ${round + 1}`);
    const alone = round === 0 ? (["direct"] as const) : [];
    for (const each of contenders(bench, round, "pipe", "corked", ...alone))
      await sampleEcho(bench, each, "idle", rounds);
    for (const each of contenders(bench, round, "pipe", "corked"))
      await sampleEcho(bench, each, "bulk download", rounds);
    for (const each of contenders(bench, round)) {
      await sampleEcho(bench, each, "stalled reader", rounds);
      await sampleEcho(bench, each, "stalled target", rounds);
    }
  }
  const row = (beside: Beside, p: "p50" | "p99", goals: (figures: Row["figures"]) => Row["goals"]): Row => {
    const figures = rounds.medians(`${beside} ${p}`);
    return { group: "latency", label: `echo ${p}, ${beside}`, unit: "ms", figures, goals: goals(figures) };
  };
  const besideIdle = (figures: Row["figures"]) => {
    const idle = rounds.medians("idle p99").culvert ?? Number.NaN;
    return [below(figures, 2 * idle + 2, "ms (2× idle + 2)")];
  };
  return [
    row("idle", "p50", () => []),
    row("idle", "p99", () => []),
    row("bulk download", "p50", (figures) => [atMost(figures, 2, "pipe")]),
    row("bulk download", "p99", (figures) => [atMost(figures, 1, "pipe")]),
    row("stalled reader", "p99", besideIdle),
    row("stalled target", "p99", besideIdle),
  ];
}

/** Adds `p50` and `p99` of an echo beside that. */
export async function sampleEcho(bench: Bench, contender: Contender, beside: Beside, rounds: Rounds): Promise<void> {
  const { bulkLoad, echoLoad } = bench.around;
  const dial = (target: BenchTarget) => contender.dial(target);
  if (beside === "bulk download") await bulkLoad.call("bulk", { dial: dial("source"), flow: "down", streams: 1 });
  if (beside === "stalled reader") await bulkLoad.call("holdMany", { dial: dial("source"), count: 1, as: "stalled" });
  if (beside === "stalled target") await bulkLoad.call("holdMany", { dial: dial("stuck"), count: 1, as: "pushing" });
  if (beside !== "idle") await sleep(WARM_UP_MS);
  const { seconds } = bench.settings;
  const { p50Ms, p99Ms } = await echoLoad.call("echo", { dial: dial("echo"), seconds, paceMs: PACE_MS });
  await bulkLoad.call("release", {});
  rounds.add(contender.name, `${beside} p50`, p50Ms);
  rounds.add(contender.name, `${beside} p99`, p99Ms);
  await sleep(100);
}
