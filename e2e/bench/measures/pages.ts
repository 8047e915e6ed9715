import { ClusterFolder, numbered } from "../../harness/cluster-files.ts";
import { startAgentProcess, startClusterProcess } from "../../harness/cluster-processes.ts";
import { freePort } from "../../harness/targets/absent.ts";
import type { Bench } from "../bench.ts";
import { BenchChild } from "../child.ts";
import type { Contender } from "../contenders.ts";
import type { PageMethods } from "../pages.ts";
import { atLeast, atMost, Rounds, type Row } from "../rows.ts";
import { type Kind, sampleRate } from "./connect.ts";
import { sampleEcho } from "./latency.ts";

const CLUSTERS = 1_000;
const PAGES = 10;
const KIND: Kind = "CONNECT, 1-byte echo, close";
const QUIET = { ignoreStdout: true } as const;

/**
 * The cost of ten open status pages for the callers of a server of a thousand clusters, measured with and without them.
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
  const connect = (target: keyof typeof bench.around.ports) => `127.0.0.1:${bench.around.ports[target]}`;
  const of = (name: "culvert" | "without"): Contender => ({
    ...{ name, near: server.pid, far: agent.pid },
    dial: (target) => ({ path: cluster.uds, connect: connect(target) }),
    async [Symbol.asyncDispose]() {},
  });
  const rounds = new Rounds();
  const sample = async (contender: Contender, into = rounds) => {
    await sampleRate(bench, contender, KIND, contender.dial("echo"), into);
    await sampleEcho(bench, contender, "idle", into);
  };
  for (let warming = 0; warming < 2; warming++) await sample(of("without"), new Rounds()); // until the path is compiled
  for (let round = 0; round < bench.settings.rounds; round++) {
    bench.say(`pages, round ${round + 1}`);
    if (round % 2 === 0) await sample(of("without"));
    await browsers.call("look", { port: adminPort, count: PAGES, cluster: cluster.name });
    await sample(of("culvert"));
    await browsers.call("lookAway", {});
    if (round % 2 === 1) await sample(of("without"));
  }
  const row = (label: string, figure: string, unit: string, goal: typeof atMost, limit: number): Row => {
    const figures = rounds.medians(figure);
    return {
      group: "pages",
      label: `${PAGES} pages open, ${label}`,
      unit,
      figures,
      goals: [goal(figures, limit, "without")],
    };
  };
  return [
    row(`${KIND}: rate`, `${KIND} rate`, "/s", atLeast, 0.95),
    row(`${KIND}: server`, `${KIND} server`, "CPU µs", atMost, 1.05),
    row("echo p50", "idle p50", "ms", atMost, 1.05),
    row("echo p99", "idle p99", "ms", atMost, 1.05),
  ];
}
