import { setTimeout as sleep } from "node:timers/promises";
import { collectGarbage, INSPECTED } from "../../harness/inspector.ts";
import type { ManagedProcess } from "../../harness/processes.ts";
import type { Bench } from "../bench.ts";
import type { Culvert } from "../culvert.ts";
import { below, type Row } from "../rows.ts";

const IDLE_COUNTS = [1000, 5000] as const;
const STALLED = 1000;
/** 1,000 × the first window + the session's budget + slack, in MiB. */
const STALLED_LIMIT_MIB = (STALLED * 65_536) / 1_048_576 + 64 + 32;
const STALLED_MS = 4000;
const SETTLE_MS = 500;

/** The memory of idle streams, and the most that stopped readers can make the processes hold. */
export async function memory(bench: Bench): Promise<Row[]> {
  if (!bench.culvert) return [];
  const { startCulvertPair } = await import("../culvert.ts");
  const flags = { maxStreams: 10_000 };
  await using pair = await startCulvertPair(bench.around.ports, { flags, nodeArgs: INSPECTED });
  const rows = await idleStreams(bench, pair);
  return [...rows, ...(await stalledReaders(bench, pair))];
}

function sides(pair: Culvert): readonly (readonly [string, ManagedProcess])[] {
  if (!pair.agent) throw new Error("memory wants an agent");
  return [
    ["server", pair.server],
    ["agent", pair.agent],
  ];
}

async function idleStreams(bench: Bench, pair: Culvert): Promise<Row[]> {
  const { bulkLoad } = bench.around;
  const hold = (count: number) => bulkLoad.call("holdMany", { dial: pair.dial("echo"), count, as: "idle" });
  const rows: Row[] = [];
  bench.say("memory: warm-up");
  await hold(1000); // code is compiled and the heap has its working size before anything is compared
  await bulkLoad.call("release", {});
  await sleep(SETTLE_MS);
  const base = await collected(pair);
  let held = 0;
  for (const count of IDLE_COUNTS) {
    bench.say(`memory: ${count} idle streams`);
    await hold(count - held);
    held = count;
    await sleep(SETTLE_MS);
    const raw = sides(pair).map(([, process]) => process.rssBytes());
    const kept = await collected(pair);
    for (const [i, [side]] of sides(pair).entries()) {
      const perStream = (bytes: number | undefined) => ({ culvert: ((bytes ?? 0) - (base[i] ?? 0)) / count / 1024 });
      const figures = perStream(kept[i]);
      const label = `idle stream of ${count}: ${side}`;
      rows.push({
        group: "memory",
        label,
        unit: "KiB",
        figures,
        goals: count === 5000 ? [below(figures, 12, "KiB")] : [],
      });
      rows.push({
        group: "memory",
        label: `${label}, with garbage`,
        unit: "KiB",
        figures: perStream(raw[i]),
        goals: [],
      });
    }
  }
  await bulkLoad.call("release", {});
  await sleep(SETTLE_MS);
  return rows;
}

async function stalledReaders(bench: Bench, pair: Culvert): Promise<Row[]> {
  const { bulkLoad } = bench.around;
  const base = await collected(pair);
  const peaks = base.slice();
  const watch = setInterval(() => {
    for (const [i, [, process]] of sides(pair).entries()) peaks[i] = Math.max(peaks[i] ?? 0, process.rssBytes());
  }, 50);
  bench.say(`memory: ${STALLED} stalled readers`);
  try {
    await bulkLoad.call("holdMany", { dial: pair.dial("megabyte"), count: STALLED, as: "stalled" });
    await sleep(STALLED_MS);
  } finally {
    clearInterval(watch);
  }
  await bulkLoad.call("release", {});
  await sleep(2 * SETTLE_MS);
  const after = await collected(pair);
  return sides(pair).flatMap(([side], i) => {
    const grown = (bytes: number | undefined) => ({ culvert: ((bytes ?? 0) - (base[i] ?? 0)) / 1_048_576 });
    const peak = grown(peaks[i]);
    const group = "memory";
    const label = `${STALLED} stalled readers: ${side}`;
    return [
      {
        group,
        label: `${label}, peak growth`,
        unit: "MiB",
        figures: peak,
        goals: [below(peak, STALLED_LIMIT_MIB, "MiB")],
      },
      { group, label: `${label}, left behind`, unit: "MiB", figures: grown(after[i]), goals: [] },
    ];
  });
}

/** RSS of each side once its garbage is gone. */
function collected(pair: Culvert): Promise<number[]> {
  return Promise.all(
    sides(pair).map(async ([, process]) => {
      await collectGarbage(process);
      return process.rssBytes();
    }),
  );
}
