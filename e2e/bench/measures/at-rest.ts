import { setTimeout as sleep } from "node:timers/promises";
import { rssBytes } from "../../harness/proc.ts";
import { TempDir } from "../../harness/temp.ts";
import { type Bench, rotated } from "../bench.ts";
import { listening, Pair } from "../products/pair.ts";
import { Program } from "../products/program.ts";
import { below, Rounds, type Row } from "../rows.ts";

const TIMES = 10;
const SETTLE_MS = 500;
/** Node with nothing but a listener: no program on it starts sooner or is smaller. */
const LISTENER = "require('node:net').createServer().listen(process.argv[1])";

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
  for (let time = 0; time < TIMES; time++) await sampleNode(rounds);
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

async function sampleNode(rounds: Rounds): Promise<void> {
  using dir = new TempDir();
  const path = dir.file("s");
  const begun = performance.now();
  await using node = new Program([process.execPath, "-e", LISTENER, path], dir.file("log"));
  await listening(node, [{ path }]);
  rounds.add("bare", "listening", performance.now() - begun);
  await sleep(SETTLE_MS);
  rounds.add("bare", "server", rssBytes(node.pid) / 2 ** 20);
}
