import { execFileSync } from "node:child_process";
import { fileURLToPath } from "node:url";
import { withBuildOf } from "../harness/processes.ts";
import { settingsOrUsage } from "../harness/settings-or-usage.ts";
import type { Bench } from "./bench.ts";
import {
  type Contender,
  type ContenderName,
  direct,
  Surroundings,
  startConnectProxy,
  startRelayPair,
} from "./contenders.ts";
import { against } from "./measures/against.ts";
import { atRest } from "./measures/at-rest.ts";
import { clusters } from "./measures/clusters.ts";
import { connect } from "./measures/connect.ts";
import { dials } from "./measures/dials.ts";
import { fleet } from "./measures/fleet.ts";
import { hop } from "./measures/hop.ts";
import { http2 } from "./measures/http2.ts";
import { innerTls } from "./measures/inner-tls.ts";
import { latency } from "./measures/latency.ts";
import { memory } from "./measures/memory.ts";
import { noisyNeighbour } from "./measures/noisy-neighbour.ts";
import { pages } from "./measures/pages.ts";
import { plannedChange } from "./measures/planned-change.ts";
import { processes } from "./measures/processes.ts";
import { sidecar } from "./measures/sidecar.ts";
import { slowLine } from "./measures/slow-line.ts";
import { start } from "./measures/start.ts";
import { storm } from "./measures/storm.ts";
import { throughput } from "./measures/throughput.ts";
import { traces } from "./measures/traces.ts";
import { traffic } from "./measures/traffic.ts";
import { keepComparison } from "./page.ts";
import { culvert } from "./products/culvert.ts";
import { peersIn } from "./products/found.ts";
import type { Product } from "./products/product.ts";
import { table } from "./report.ts";
import { circumstances, record } from "./results.ts";
import { comparedWithBefore, type Row, withFigureBefore } from "./rows.ts";
import { type Group, readSettings, type Settings, USAGE } from "./settings.ts";

const MEASURES: Record<Group, (bench: Bench) => Promise<Row[]>> = {
  throughput,
  latency,
  connect,
  against,
  memory,
  start,
  "slow-line": slowLine,
  "planned-change": plannedChange,
  storm,
  "noisy-neighbour": noisyNeighbour,
  clusters,
  "inner-tls": innerTls,
  processes,
  hop,
  sidecar,
  traces,
  pages,
  fleet,
  dials,
  traffic,
  http2,
  "at-rest": atRest,
};

/** `npm run bench`: culvert and its floors in one run on one machine. */
async function main(): Promise<void> {
  const settings = settingsOrUsage(readSettings, USAGE);
  const begun = performance.now();
  const all = products(settings);
  const about = circumstances(all);
  if (settings.build) build();
  await using around = new Surroundings();
  await around.start();
  await using stack = new Stack();
  const { against } = settings;
  const pair = settings.floorsOnly ? undefined : await stack.use(startCulvert(around, "culvert"));
  const before =
    against === undefined
      ? undefined
      : await withBuildOf(against, async () => await stack.use(startCulvert(around, "before")));
  const [pipe, corked, proxy] = await Promise.all([
    stack.use(startRelayPair("pipe", around)),
    stack.use(startRelayPair("corked", around)),
    stack.use(startConnectProxy(around)),
  ]);
  const bench: Bench = {
    settings,
    around,
    culvert: pair,
    before,
    floors: { pipe, corked, proxy, direct: direct(around) },
    products: all,
    say,
  };
  const rows: Row[] = [];
  for (const group of settings.only) {
    try {
      rows.push(...(await measure(group, bench)));
    } catch (error) {
      console.error(`${group} failed: ${error instanceof Error ? error.stack : error}`);
      process.exitCode = 1;
    }
  }
  const seconds = (performance.now() - begun) / 1000;
  console.log(`${table(rows)}\n\n${seconds.toFixed(0)} s; appended to ${record(rows, settings, about, seconds)}`);
  if (settings.page && process.exitCode === undefined) keepComparison(rows, settings, about);
}

/** The rows of a group. A measure that starts processes of its own is repeated with the other build. */
async function measure(group: Group, bench: Bench): Promise<Row[]> {
  const rows = await MEASURES[group](bench);
  const { before, settings } = bench;
  if (before === undefined || settings.against === undefined) return rows;
  if (rows.some(({ figures }) => figures.before !== undefined)) return rows.map(comparedWithBefore);
  bench.say(`${group}, the build before`);
  const again = await withBuildOf(settings.against, () => MEASURES[group]({ ...bench, culvert: before }));
  return rows.map((row) => comparedWithBefore(withFigureBefore(row, again)));
}

function products({ floorsOnly, against, peers }: Settings): Product[] {
  return [
    ...(floorsOnly ? [] : [culvert("culvert")]),
    ...(against === undefined ? [] : [culvert("before", against)]),
    ...(peers === undefined ? [] : peersIn(peers, say)),
  ];
}

/** Imported late: the floors alone need no build. */
async function startCulvert(around: Surroundings, name: ContenderName) {
  const { startCulvertPair } = await import("./culvert.ts");
  return startCulvertPair(around.ports, { name });
}

function build(): void {
  const root = fileURLToPath(new URL("../..", import.meta.url));
  execFileSync("npm", ["run", "-s", "build"], { cwd: root, stdio: "inherit" });
}

function say(progress: string): void {
  console.error(`· ${progress}`);
}

/** Contenders in the order they came up, ended in reverse (Node 20 has no AsyncDisposableStack). */
class Stack implements AsyncDisposable {
  readonly #held: Contender[] = [];

  async use<T extends Contender>(starting: Promise<T>): Promise<T> {
    const contender = await starting;
    this.#held.push(contender);
    return contender;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const contender of this.#held.reverse()) await contender[Symbol.asyncDispose]();
  }
}

await main();
