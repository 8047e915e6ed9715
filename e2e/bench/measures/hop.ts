import { type Bench, rotated } from "../bench.ts";
import { startRelayPair } from "../contenders.ts";
import type { HopPair } from "../hop-pair.ts";
import { atLeast, atMost, type Goal, Rounds, type Row, shortNumber } from "../rows.ts";
import { sampleFlow } from "./throughput.ts";

const GROUP = "hop";
const MORE_MS = 1;
const SHARE = 0.8;
/** With more, the hop's two processes would share this machine with what they are compared with. */
const IN_FLIGHT = 1;

/**
 * The cost of a hop: a caller comes to a server without an agent of its cluster, and a second server is on the path.
 */
export async function hop(bench: Bench): Promise<Row[]> {
  if (!bench.culvert) return [];
  const { startHopPair } = await import("../hop-pair.ts");
  await using pair = await startHopPair(bench.around.ports);
  return [...(await connects(bench, pair)), ...(await throughput(bench, pair))];
}

async function connects(bench: Bench, { over, direct }: HopPair): Promise<Row[]> {
  const rounds = new Rounds();
  const { seconds } = bench.settings;
  for (let round = 0; round < bench.settings.rounds; round++) {
    bench.say(`hop, connections, round ${round + 1}`);
    for (const contender of [over, direct]) {
      const dial = contender.dial("echo");
      const result = await bench.around.bulkLoad.call("rate", { dial, inFlight: IN_FLIGHT, seconds, until: "connect" });
      if (result.failures > 0) bench.say(`${contender.name}: ${result.failures} failed: ${result.firstFailure}`);
      rounds.add(contender.name, "p50", result.p50Ms);
      rounds.add(contender.name, "p99", result.p99Ms);
    }
  }
  const p50 = rounds.medians("p50");
  return [
    { group: GROUP, label: "CONNECT, one after the other: p50", unit: "ms", figures: p50, goals: [more(p50)] },
    {
      group: GROUP,
      label: "CONNECT, one after the other: p99",
      unit: "ms",
      figures: rounds.medians("p99"),
      goals: [],
    },
  ];
}

async function throughput(bench: Bench, { over, direct }: HopPair): Promise<Row[]> {
  await using relays = await startRelayPair("pipe", bench.around, 3);
  const rows: Row[] = [];
  for (const flow of ["down", "up"] as const) {
    const rounds = new Rounds();
    for (let round = 0; round < bench.settings.rounds; round++) {
      bench.say(`hop, ${flow}, round ${round + 1}`);
      for (const each of rotated([over, direct, relays], round)) await sampleFlow(bench, each, flow, 1, rounds);
    }
    const rate = rounds.medians("MB/s");
    const label = `${flow}, 1 stream`;
    const goals = [atLeast(rate, SHARE, "without"), atLeast(rate, 1, "pipe")];
    rows.push({ group: GROUP, label, unit: "MB/s", figures: rate, goals });
    const cpu = (who: string, process: string, compare: (figures: Row["figures"]) => Goal[] = () => []): Row => {
      const figures = rounds.medians(process);
      return { group: GROUP, label: `${label}: ${who}`, unit: "CPU s/GB", figures, goals: compare(figures) };
    };
    rows.push(cpu("the caller's server", "near"), cpu("agent", "far"));
    rows.push(cpu("the agent's server", "between", (figures) => [atMost(figures, 1, "pipe")]));
  }
  return rows;
}

function more({ culvert = Number.NaN, without = Number.NaN }: Row["figures"]): Goal {
  const ms = culvert - without;
  return { text: `+${shortNumber(ms)} ≤ ${MORE_MS} ms`, met: Number.isNaN(ms) ? undefined : ms <= MORE_MS };
}
