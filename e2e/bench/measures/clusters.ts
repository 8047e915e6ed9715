import { ClusterFolder, numbered } from "../../harness/cluster-files.ts";
import { type ClusterServerProcess, startClusterProcess } from "../../harness/cluster-processes.ts";
import { runConcurrently } from "../../harness/concurrently.ts";
import type { Bench } from "../bench.ts";
import { BenchChild } from "../child.ts";
import type { HandshakeMethods, Visitor } from "../many/handshakes.ts";
import { above, below, type Row } from "../rows.ts";
import { median } from "../stats.ts";

const CLUSTERS = 1_000;
const STARTS = 3;
const SAMPLES = 5;
const IN_FLIGHT = 16;
const MIB = 1_048_576;
const QUIET = { ignoreStdout: true } as const;

/** A server with a thousand clusters beside one with a single one: what all the others cost. */
export async function clusters(bench: Bench): Promise<Row[]> {
  if (!bench.culvert) return [];
  bench.say(`clusters: certificates of ${CLUSTERS}`);
  using few = await ClusterFolder.create(numbered("blue", 1));
  using many = await ClusterFolder.create(numbered("red", CLUSTERS));
  const starts: number[] = [];
  for (let count = 0; count < STARTS; count++) {
    bench.say(`clusters: start with ${CLUSTERS}, ${count + 1} of ${STARTS}`);
    const { server, readyMs } = await startClusterProcess(many, {}, QUIET);
    await server.stop();
    starts.push(readyMs / 1_000);
  }
  await using one = await side(few, 1);
  await using all = await side(many, CLUSTERS);
  return toRows(starts, one, all, await rates(bench, one, all));
}

/** A server with its visitors, all of whose names have been asked for once. */
interface Side extends ClusterServerProcess, AsyncDisposable {
  readonly clusters: number;
  readonly visitors: BenchChild<HandshakeMethods>;
  readonly rss: { readonly loaded: number; readonly used: number };
}

async function side(folder: ClusterFolder, clusters: number): Promise<Side> {
  const process = await startClusterProcess(folder, {}, QUIET);
  const { server, callerPort: port } = process;
  const visitors = new BenchChild<HandshakeMethods>("many/handshakes.ts");
  const stop = async () => {
    await visitors[Symbol.asyncDispose]();
    await server.stop();
  };
  try {
    const loaded = server.rssBytes();
    const more: Visitor[] = [];
    await runConcurrently(clusters, 8, async (index) => {
      const cluster = folder.all[index];
      if (cluster) more[index] = { servername: cluster.sni, ca: cluster.ca, ...(await cluster.callerPair) };
    });
    await visitors.call("invite", { more });
    await visitors.call("visitAll", { port, clusters });
    return { ...process, clusters, visitors, rss: { loaded, used: server.rssBytes() }, [Symbol.asyncDispose]: stop };
  } catch (error) {
    await stop();
    throw error;
  }
}

/** In turn, so that a machine that has become slower has become so for both. */
async function rates(bench: Bench, one: Side, all: Side): Promise<{ one: number; all: number }> {
  const { seconds } = bench.settings;
  const sample = async ({ visitors, callerPort: port, clusters }: Side) =>
    (await visitors.call("rate", { port, clusters, inFlight: IN_FLIGHT, seconds })).perSecond;
  const samples = { one: [] as number[], all: [] as number[] };
  for (let count = 0; count < SAMPLES; count++) {
    bench.say(`clusters: handshakes, ${count + 1} of ${SAMPLES}`);
    samples.one.push(await sample(one));
    samples.all.push(await sample(all));
  }
  return { one: median(samples.one), all: median(samples.all) };
}

function toRows(starts: readonly number[], one: Side, all: Side, rate: { one: number; all: number }): Row[] {
  const row = (label: string, unit: string, value: number, goals: Row["goals"] = []): Row => {
    return { group: "clusters", label, unit, figures: { culvert: value }, goals };
  };
  const started = median(starts);
  return [
    row(`start with ${CLUSTERS} clusters → ready`, "s", started, [below({ culvert: started }, 5, "s")]),
    row("RSS, 1 cluster", "MiB", one.rss.used / MIB),
    row(`RSS, ${CLUSTERS} clusters loaded`, "MiB", all.rss.loaded / MIB),
    row(`RSS, ${CLUSTERS} clusters, each visited once`, "MiB", all.rss.used / MIB),
    row("mutual handshakes, 1 cluster", "/s", rate.one),
    row(`mutual handshakes, any of ${CLUSTERS}`, "/s", rate.all, [
      above({ culvert: rate.all }, 0.8 * rate.one, "/s (0.8× one cluster)"),
    ]),
  ];
}
