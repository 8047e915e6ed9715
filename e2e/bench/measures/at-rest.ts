import { setTimeout as sleep } from "node:timers/promises";
import { rssBytes } from "../../harness/proc.ts";
import { type Bench, rotated } from "../bench.ts";
import { Pair } from "../products/pair.ts";
import { below, Rounds, type Row } from "../rows.ts";

const TIMES = 10;
const SETTLE_MS = 500;

/** Starting both processes: how soon they work, and the memory that they have then. */
export async function atRest(bench: Bench): Promise<Row[]> {
  const rounds = new Rounds();
  for (let time = 0; time < TIMES; time++) {
    bench.say(`start and rest, ${time + 1} of ${TIMES}`);
    for (const product of rotated(bench.products, time)) {
      await using pair = await Pair.start(product, bench.around, "unix socket");
      await sleep(SETTLE_MS);
      rounds.add(pair.name, "listening", pair.listeningMs);
      rounds.add(pair.name, "first echo", pair.firstEchoMs);
      rounds.add(pair.name, "server", rssBytes(pair.near) / 2 ** 20);
      rounds.add(pair.name, "agent", rssBytes(pair.far) / 2 ** 20);
    }
  }
  const row = (label: string, unit: string, figure: string, limit: number): Row => {
    const figures = rounds.medians(figure);
    return { group: "at-rest", label, unit, figures, goals: [below(figures, limit, unit)] };
  };
  return [
    row("server start → listening", "ms", "listening", 200),
    row("agent start → first connection with an echo", "ms", "first echo", 250),
    row("RSS after the first connection: server", "MiB", "server", 64),
    row("RSS after the first connection: agent", "MiB", "agent", 64),
  ];
}
