import type { Bench } from "../bench.ts";
import type { Culvert } from "../culvert.ts";
import { below, type Row } from "../rows.ts";

const PACE_MS = 10;
/** A p99.9 wants a few thousand echoes. */
const LEAST_SECONDS = 20;

/** An echo a hundred times a second on carriers that stay, and on carriers that are changed each second. */
export async function plannedChange(bench: Bench): Promise<Row[]> {
  if (!bench.culvert) return [];
  const { startCulvertPair } = await import("../culvert.ts");
  await using pair = await startCulvertPair(bench.around.ports, { withAgent: false });
  bench.say("planned change: carriers that stay");
  const staying = await p999(bench, pair, {});
  bench.say("planned change: another carrier each second");
  const changing = await p999(bench, pair, { maxCarrierAge: "1s" });
  const figures = { culvert: changing };
  const limitMs = 2 * staying + 50;
  const group = "planned-change";
  return [
    { group, label: "100 Hz echo p99.9, same carrier", unit: "ms", figures: { culvert: staying }, goals: [] },
    {
      ...{ group, label: "100 Hz echo p99.9, another each second", unit: "ms", figures },
      goals: [below(figures, limitMs, "ms (2× same + 50)")],
    },
  ];
}

async function p999(bench: Bench, pair: Culvert, flags: Readonly<Record<string, string>>): Promise<number> {
  await using _agent = await pair.site.startAgent(flags, { ignoreStdout: true });
  const { seconds: sample, rounds } = bench.settings;
  const seconds = Math.max(LEAST_SECONDS, sample * rounds);
  return (await bench.around.echoLoad.call("echo", { dial: pair.dial("echo"), seconds, paceMs: PACE_MS })).p999Ms;
}
