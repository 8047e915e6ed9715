import { setTimeout as sleep } from "node:timers/promises";
import { ClusterFolder, numbered } from "../../harness/cluster-files.ts";
import { startAgentProcess, startClusterProcess } from "../../harness/cluster-processes.ts";
import { freePort } from "../../harness/targets/absent.ts";
import type { Bench } from "../bench.ts";
import { BenchChild } from "../child.ts";
import type { Contender } from "../contenders.ts";
import type { BareEventsMethods } from "../floors/bare-events.ts";
import type { PageMethods } from "../pages.ts";
import { atLeast, atMost, Rounds, type Row } from "../rows.ts";
import { type Kind, sampleRate } from "./connect.ts";
import { sampleEcho } from "./latency.ts";

const CLUSTERS = 1_000;
const PAGES = 10;
const KIND: Kind = "CONNECT, 1-byte echo, close";
/** A reader's first message has all clusters. */
const FIRST_LOOK_MS = 1_000;
const QUIET = { ignoreStdout: true } as const;

/** In one round, since two samples of the same p99 differ by a third. */
const TURNS = 4;
type State = "without" | "bare" | "culvert";
const STATES: readonly State[] = ["without", "bare", "culvert"];

/**
 * The cost of ten open status pages for the callers of a server of a thousand clusters. It is measured without a page,
 * with ten readers of another server (`bare`), which take time of the machine as well, and with the pages.
 */
export async function pages(bench: Bench): Promise<Row[]> {
  if (!bench.culvert) return [];
  bench.say(`pages: certificates of ${CLUSTERS} clusters`);
  using folder = await ClusterFolder.create(numbered("red", CLUSTERS));
  const [cluster] = folder.all;
  if (cluster === undefined) return [];
  const adminPort = await freePort();
  const { server, agentPort } = await startClusterProcess(folder, { adminPort }, QUIET);
  await using _server = server;
  await using agent = await startAgentProcess(cluster, agentPort, QUIET);
  await using browsers = new BenchChild<PageMethods>("pages.ts");
  await using bare = new BenchChild<BareEventsMethods>("floors/bare-events.ts");
  const portOf = { bare: (await bare.call("start", {})).port, culvert: adminPort };
  const connect = (target: keyof typeof bench.around.ports) => `127.0.0.1:${bench.around.ports[target]}`;
  const of = (name: State): Contender => ({
    ...{ name, near: server.pid, far: agent.pid },
    dial: (target) => ({ path: cluster.uds, connect: connect(target) }),
    async [Symbol.asyncDispose]() {},
  });
  const rounds = new Rounds();
  const sample = async (state: State, into = rounds): Promise<void> => {
    if (state !== "without") {
      await browsers.call("look", { port: portOf[state], count: PAGES, cluster: cluster.name });
      await sleep(FIRST_LOOK_MS);
    }
    const contender = of(state);
    await sampleRate(bench, contender, KIND, contender.dial("echo"), into);
    await sampleEcho(bench, contender, "idle", into);
    await browsers.call("lookAway", {});
  };
  for (const state of STATES) await sample(state, new Rounds()); // until the path is compiled
  for (let turn = 0; turn < bench.settings.rounds * TURNS; turn++) {
    bench.say(`pages, turn ${turn + 1}`);
    for (const state of turn % 2 === 0 ? STATES : STATES.toReversed()) await sample(state);
  }
  const row = (label: string, figure: string, unit: string, goals: (figures: Row["figures"]) => Row["goals"]): Row => {
    const figures = rounds.medians(figure);
    return { group: "pages", label: `${PAGES} pages open, ${label}`, unit, figures, goals: goals(figures) };
  };
  return [
    row(`${KIND}: rate`, `${KIND} rate`, "/s", (figures) => [atLeast(figures, 0.95, "without")]),
    row(`${KIND}: server`, `${KIND} server`, "CPU µs", (figures) => [atMost(figures, 1.05, "without")]),
    row("echo p50", "idle p50", "ms", (figures) => [atMost(figures, 1.05, "without")]),
    row("echo p99", "idle p99", "ms", (figures) => [atMost(figures, 1.05, "without"), atMost(figures, 1.05, "bare")]),
  ];
}
