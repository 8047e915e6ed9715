import { type Bench, rotated } from "../bench.ts";
import { type Contender, type ContenderName, startRelayPair } from "../contenders.ts";
import type { Culvert } from "../culvert.ts";
import type { DialSpec } from "../dial-spec.ts";
import { atLeast, atMost, type Goal, Rounds, type Row } from "../rows.ts";
import { sampleEcho } from "./latency.ts";
import { sampleFlow } from "./throughput.ts";

const GROUP = "sidecar";
/** A CONNECT through the sidecar may take this many times as long as one without. */
const CONNECT_FACTOR = 1.6;
const WARM_UP_SECONDS = 3;
/** The share of what a relay with one process more carries. */
const BULK_SHARE = 0.7;
/** With more, the processes of the way would wait for each other. */
const IN_FLIGHT = 1;

/** The cost of `culvert http-proxy` for a client: one process more on the path. */
export async function sidecar(bench: Bench): Promise<Row[]> {
  const { culvert, around } = bench;
  if (!culvert) return [];
  const { startBareSidecar, startSidecar } = await import("../sidecar-process.ts");
  await using through = await startSidecar(culvert, around.ports);
  await using bare = await startBareSidecar(culvert, around.ports);
  await using relays = await startRelayPair("pipe", around, 3);
  return [
    ...(await connects(bench, through, bare, culvert)),
    ...(await bulk(bench, [through, bare, without(culvert), relays])),
    ...(await echoes(bench, [through, without(culvert), relays])),
  ];
}

function without(culvert: Culvert): Contender {
  return { ...culvert, name: "without", dial: (target) => culvert.dial(target) };
}

async function connects(bench: Bench, through: Contender, bare: Contender, culvert: Culvert): Promise<Row[]> {
  const rounds = new Rounds();
  const { seconds } = bench.settings;
  const { bulkLoad } = bench.around;
  const ways = [through.dial("echo"), culvert.dial("echo"), culvert.dialTls("echo"), bare.dial("echo")] as const;
  // Until V8 has optimised the path, its compiler takes turns on the same cores.
  for (const dial of ways)
    await bulkLoad.call("rate", { dial, inFlight: 32, seconds: WARM_UP_SECONDS, until: "connect" });
  for (let round = 0; round < bench.settings.rounds; round++) {
    bench.say(`sidecar, connections, round ${round + 1}`);
    const p50 = new Map<DialSpec, number>();
    for (const dial of rotated([...ways], round)) {
      const result = await bulkLoad.call("rate", { dial, inFlight: IN_FLIGHT, seconds, until: "connect" });
      if (result.failures > 0) bench.say(`${result.failures} failed: ${result.firstFailure}`);
      p50.set(dial, result.p50Ms);
    }
    const [ofSidecar = 0, ofUnix = 0, ofTls = 0, ofBare = 0] = ways.map((dial) => p50.get(dial));
    rounds.add("culvert", "unix", ofSidecar);
    rounds.add("without", "unix", ofUnix);
    rounds.add("culvert", "mTLS", ofSidecar);
    rounds.add("without", "mTLS", ofTls);
    rounds.add("culvert", "bare", ofSidecar);
    rounds.add("bare", "bare", ofBare);
  }
  const row = (way: string, label: string, factor: number, beside: ContenderName = "without"): Row => {
    const figures = rounds.medians(way);
    return { group: GROUP, label, unit: "ms", figures, goals: [atMost(figures, factor, beside)] };
  };
  return [
    row("unix", "CONNECT, one after the other, beside the server's unix socket: p50", CONNECT_FACTOR),
    row("mTLS", "CONNECT, one after the other, beside new mutual-TLS connections: p50", 1),
    row("bare", "CONNECT, one after the other, beside a bare sidecar in Node: p50", 1, "bare"),
  ];
}

async function bulk(bench: Bench, all: readonly Contender[]): Promise<Row[]> {
  const rows: Row[] = [];
  for (const flow of ["down", "up"] as const) {
    const rounds = new Rounds();
    for (let round = 0; round < bench.settings.rounds; round++) {
      bench.say(`sidecar, ${flow}, round ${round + 1}`);
      for (const each of rotated([...all], round)) await sampleFlow(bench, each, flow, 1, rounds);
    }
    const rate = rounds.medians("MB/s");
    const label = `${flow}, 1 stream`;
    const goals = [atLeast(rate, BULK_SHARE, "pipe"), atLeast(rate, 1, "bare")];
    rows.push({ group: GROUP, label, unit: "MB/s", figures: rate, goals });
    const cpu = rounds.medians("near");
    const { culvert = Number.NaN, pipe = Number.NaN } = cpu;
    rows.push({
      group: GROUP,
      label: `${label}: the sidecar`,
      unit: "CPU s/GB",
      figures: { culvert, pipe },
      goals: [],
    });
  }
  return rows;
}

async function echoes(bench: Bench, all: readonly Contender[]): Promise<Row[]> {
  const rounds = new Rounds();
  for (let round = 0; round < bench.settings.rounds; round++) {
    bench.say(`sidecar, echo, round ${round + 1}`);
    for (const each of rotated([...all], round)) await sampleEcho(bench, each, "idle", rounds);
    for (const each of rotated([...all], round)) await sampleEcho(bench, each, "bulk download", rounds);
  }
  const row = (beside: string, p: "p50" | "p99", goals: (figures: Row["figures"]) => Goal[]): Row => {
    const figures = rounds.medians(`${beside} ${p}`);
    return { group: GROUP, label: `echo ${p}, ${beside}`, unit: "ms", figures, goals: goals(figures) };
  };
  return [
    row("idle", "p50", () => []),
    row("bulk download", "p50", (figures) => [atMost(figures, 2, "pipe")]),
    row("bulk download", "p99", (figures) => [atMost(figures, 1, "pipe")]),
  ];
}
