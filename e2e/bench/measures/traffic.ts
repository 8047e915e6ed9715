import { cpuSeconds } from "../../harness/proc.ts";
import { type Bench, rotated } from "../bench.ts";
import type { Contender } from "../contenders.ts";
import { Pair } from "../products/pair.ts";
import type { Product } from "../products/product.ts";
import { atLeast, atMost, Rounds, type Row, withPeer } from "../rows.ts";
import { sampleEcho } from "./latency.ts";
import { sampleFlow } from "./throughput.ts";

const LANES = [1, 32] as const;
/** A busy machine needs more than once to make so many connections. */
const WARM_UP = 4_000;
const WARM_UP_TIMES = 5;
const FLOWS = ["down", "up"] as const;

/** Traffic through each product once it is warm: short connections, one bulk stream, an echo; over the unix socket. */
export async function traffic(bench: Bench): Promise<Row[]> {
  const rounds = new Map([...FLOWS, "other"].map((key) => [key, new Rounds()]));
  const of = (key: string) => rounds.get(key) as Rounds;
  const pairs: Pair[] = [];
  try {
    for (const product of bench.products) pairs.push(await startWarm(bench, product));
    for (let round = 0; round < bench.settings.rounds; round++) {
      bench.say(`traffic, round ${round + 1}`);
      const all: Contender[] = rotated([...pairs, bench.floors.corked], round);
      for (const lanes of LANES) for (const each of all) await sampleConnections(bench, each, lanes, of("other"));
      for (const flow of FLOWS) for (const each of all) await sampleFlow(bench, each, flow, 1, of(flow));
      for (const each of all) await sampleEcho(bench, each, "idle", of("other"));
      for (const each of all) await sampleEcho(bench, each, "bulk download", of("other"));
    }
  } finally {
    for (const pair of pairs) await pair[Symbol.asyncDispose]();
  }
  return [
    ...LANES.flatMap((lanes) => {
      const label = `connect + echo + close, ${lanes === 1 ? "one at a time" : `${lanes} in flight`}`;
      return [
        row(of("other"), label, "/s", `${lanes} rate`),
        row(of("other"), `${label}: costs both processes`, "CPU ms", `${lanes} both`),
      ];
    }),
    ...FLOWS.flatMap((flow) => [
      row(of(flow), `one stream ${flow}`, "MB/s", "MB/s"),
      row(of(flow), `one stream ${flow}: both processes`, "CPU s/GB", "sum"),
    ]),
    ...(["idle", "bulk download"] as const).flatMap((beside) =>
      (["p50", "p99"] as const).map((p) => {
        const label = `echo ${p}, ${beside === "idle" ? beside : `beside a ${beside}`}`;
        return row(of("other"), label, "ms", `${beside} ${p}`);
      }),
    ),
  ];
}

/** A pair that has had short connections already: the first ones of all are measured by `dials`. */
async function startWarm(bench: Bench, product: Product): Promise<Pair> {
  bench.say(`traffic, warm-up: ${product.name}`);
  const pair = await Pair.start(product, bench.around, "unix socket");
  const dial = pair.dial("echo");
  let made = 0;
  for (let time = 0; time < WARM_UP_TIMES && made < WARM_UP; time++) {
    const result = await bench.around.bulkLoad.call("rate", { dial, inFlight: 32, seconds: 2, until: "echo" });
    made += result.perSecond * 2;
  }
  return pair;
}

function row(rounds: Rounds, label: string, unit: string, figure: string): Row {
  const figures = rounds.medians(figure);
  const goal = unit === "/s" || unit === "MB/s" ? atLeast : atMost;
  return { group: "traffic", label, unit, figures, goals: withPeer(figures, (peer) => goal(figures, 1, peer)) };
}

async function sampleConnections(bench: Bench, contender: Contender, inFlight: number, rounds: Rounds): Promise<void> {
  const { name, near, far } = contender;
  const { seconds } = bench.settings;
  const cpu = () => (near ? cpuSeconds(near) : 0) + (far ? cpuSeconds(far) : 0);
  const before = cpu();
  const dial = contender.dial("echo");
  const result = await bench.around.bulkLoad.call("rate", { dial, inFlight, seconds, until: "echo" });
  if (result.failures > 0) bench.say(`${name}: ${result.failures} connections failed: ${result.firstFailure}`);
  rounds.add(name, `${inFlight} rate`, result.perSecond);
  rounds.add(name, `${inFlight} both`, ((cpu() - before) * 1_000) / (result.perSecond * seconds));
}
