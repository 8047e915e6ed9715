import { setTimeout as sleep } from "node:timers/promises";
import { selfSigned } from "../../harness/certificate.ts";
import { type ClusterFiles, ClusterFolder } from "../../harness/cluster-files.ts";
import { startAgentProcess, startClusterProcess } from "../../harness/cluster-processes.ts";
import type { ManagedProcess } from "../../harness/processes.ts";
import { freePort } from "../../harness/targets/absent.ts";
import type { Bench } from "../bench.ts";
import { BenchChild } from "../child.ts";
import type { DialSpec } from "../dial-spec.ts";
import type { RelayMethods } from "../floors/relay.ts";
import type { FloodMethods, FloodResult } from "../many/flood.ts";
import { atMost, below, type Row } from "../rows.ts";

const REFUSED_PER_SECOND = 2_000;
const STALLED_READERS = 500;
/** Room for what the neighbour has open already. */
const LIMITS = {
  connectsPerSecond: 100,
  bytesPerSecond: "10MiB",
  streams: STALLED_READERS + 100,
  pendingConnects: 100,
};
/** An echo p99 wants a thousand echoes. */
const LEAST_SECONDS = 10;
const ECHO_PACE_MS = 5;
/** Windows are full, and the documents' change is seen. */
const SETTLE_MS = 3_000;

/** The ways of two tenants through one server: what the noisy one does there, and where the quiet one's echo is. */
interface Ways {
  readonly refused: DialSpec;
  readonly source: DialSpec;
  readonly echo: DialSpec;
}

interface Sample {
  readonly echoMs: number;
  readonly connectMs: number;
}

/** The effect of a neighbour who floods, blasts and stalls on a tenant: through culvert, and through a raw relay. */
export async function noisyNeighbour(bench: Bench): Promise<Row[]> {
  if (!bench.culvert) return [];
  const { ports } = bench.around;
  const targets = { refused: await freePort(), source: ports.source, echo: ports.echo };
  await using flood = new BenchChild<FloodMethods>("many/flood.ts");
  await using relay = await startRelay(bench, targets);
  await using pair = await startTenants(targets);

  bench.say("noisy neighbour: nobody else");
  const alone = await sample(bench, pair.ways);
  const aloneRelayed = await echoP99(bench, relay.ways);
  bench.say("noisy neighbour: through the raw relay");
  const [echoRelayed, dialsRelayed] = await beside(bench, flood, relay.ways, () => echoP99(bench, relay.ways));
  bench.say("noisy neighbour: without limits");
  const [unlimited, dialsUnlimited] = await beside(bench, flood, pair.ways, () => sample(bench, pair.ways));
  bench.say("noisy neighbour: with limits");
  const [limited, dialsLimited] = await beside(bench, flood, pair.ways, async () => {
    await pair.noisy.write({ limits: LIMITS });
    await sleep(SETTLE_MS);
    return sample(bench, pair.ways);
  });
  for (const { answers } of [dialsUnlimited, dialsLimited]) {
    bench.say(`noisy neighbour: its dials ended with ${JSON.stringify(answers)}`);
  }
  const dials = { relayed: dialsRelayed, unlimited: dialsUnlimited, limited: dialsLimited };
  return toRows({ alone, unlimited, limited, relayed: { alone: aloneRelayed, beside: echoRelayed }, dials });
}

function lengthOf({ settings: { seconds, rounds } }: Bench): number {
  return Math.max(LEAST_SECONDS, seconds * rounds);
}

async function echoP99(bench: Bench, { echo: dial }: Ways): Promise<number> {
  const seconds = lengthOf(bench);
  return (await bench.around.echoLoad.call("echo", { dial, seconds, paceMs: ECHO_PACE_MS })).p99Ms;
}

async function sample(bench: Bench, ways: Ways): Promise<Sample> {
  const echoMs = await echoP99(bench, ways);
  const asked = { dial: ways.echo, inFlight: 1, seconds: lengthOf(bench), until: "connect" } as const;
  const { p99Ms: connectMs, failures, firstFailure } = await bench.around.echoLoad.call("rate", asked);
  if (failures > 0) bench.say(`noisy neighbour: ${failures} CONNECTs of the quiet one failed: ${firstFailure}`);
  return { echoMs, connectMs };
}

/** The same while the neighbour does all it can, and what came of its dials. */
async function beside<T>(
  bench: Bench,
  flood: BenchChild<FloodMethods>,
  { refused, source }: Ways,
  action: () => Promise<T>,
): Promise<[T, FloodResult]> {
  const { bulkLoad } = bench.around;
  await bulkLoad.call("holdMany", { dial: source, count: STALLED_READERS, as: "stalled" });
  await bulkLoad.call("bulk", { dial: source, flow: "down", streams: 1 });
  await flood.call("start", { dial: refused, perSecond: REFUSED_PER_SECOND });
  await sleep(SETTLE_MS);
  const result = await action();
  const ended = await flood.call("stop", {});
  await bulkLoad.call("release", {});
  await sleep(SETTLE_MS);
  return [result, ended];
}

// ── what they go through ─────────────────────────────────────────────────────────────────────────────────────────────

type Targets = Readonly<Record<keyof Ways, number>>;

async function startTenants(targets: Targets) {
  const folder = await ClusterFolder.create(["noisy", "quiet"]);
  const [noisy, quiet] = [folder.get("noisy"), folder.get("quiet")];
  const processes: ManagedProcess[] = [];
  const dispose = async () => {
    for (const process of processes.toReversed()) await process.stop();
    folder[Symbol.dispose]();
  };
  try {
    const { server, agentPort } = await startClusterProcess(folder, {}, { ignoreStdout: true });
    processes.push(server);
    for (const each of [noisy, quiet]) processes.push(await startAgentProcess(each, agentPort, { ignoreStdout: true }));
  } catch (error) {
    await dispose();
    throw error;
  }
  const way = ({ uds: path }: ClusterFiles, port: number) => ({ path, connect: `127.0.0.1:${port}` });
  const { refused, source, echo } = targets;
  const ways: Ways = { refused: way(noisy, refused), source: way(noisy, source), echo: way(quiet, echo) };
  return { noisy, ways, [Symbol.asyncDispose]: dispose };
}

/** All tenants through one pair of processes, a TLS connection for each stream. */
async function startRelay({ around }: Bench, targets: Targets) {
  const near = new BenchChild<RelayMethods>("floors/relay.ts");
  const far = new BenchChild<RelayMethods>("floors/relay.ts");
  const certificate = await selfSigned();
  const path = (name: string) => around.dir.file(`noisy-${name}`);
  const names = Object.keys(targets);
  const farPorts = await far.call("far", { ports: Object.values(targets), certificate, joining: "pipe" });
  const ways = names.map((name, index) => ({ path: path(name), port: farPorts[index] ?? 0 }));
  await near.call("near", { ways, ca: certificate.cert, joining: "pipe" });
  return {
    ways: { refused: { path: path("refused") }, source: { path: path("source") }, echo: { path: path("echo") } },
    async [Symbol.asyncDispose]() {
      await Promise.all([near[Symbol.asyncDispose](), far[Symbol.asyncDispose]()]);
    },
  };
}

// ── rows ─────────────────────────────────────────────────────────────────────────────────────────────────────────────

interface Figures {
  readonly alone: Sample;
  readonly unlimited: Sample;
  readonly limited: Sample;
  /** The echo through the raw relay. */
  readonly relayed: { readonly alone: number; readonly beside: number };
  readonly dials: Readonly<Record<"relayed" | "unlimited" | "limited", FloodResult>>;
}

function toRows({ alone, unlimited, limited, relayed, dials }: Figures): Row[] {
  const row = (label: string, unit: string, figures: Row["figures"], goals: Row["goals"] = []): Row => {
    return { group: "noisy-neighbour", label, unit, figures, goals };
  };
  const echo = { culvert: unlimited.echoMs, pipe: relayed.beside };
  const [echoLimit, connectLimit] = [2 * alone.echoMs + 5, 3 * alone.connectMs];
  return [
    row("echo p99, alone", "ms", { culvert: alone.echoMs, pipe: relayed.alone }),
    row("CONNECT p99, alone", "ms", { culvert: alone.connectMs }),
    row("neighbour without limits: echo p99", "ms", echo, [atMost(echo, 1, "pipe")]),
    row("neighbour without limits: CONNECT p99", "ms", { culvert: unlimited.connectMs }),
    row("neighbour without limits: its dials", "/s", {
      culvert: dials.unlimited.perSecond,
      pipe: dials.relayed.perSecond,
    }),
    row("neighbour with limits: echo p99", "ms", { culvert: limited.echoMs }, [
      below({ culvert: limited.echoMs }, echoLimit, "ms (2× alone + 5)"),
    ]),
    row("neighbour with limits: CONNECT p99", "ms", { culvert: limited.connectMs }, [
      below({ culvert: limited.connectMs }, connectLimit, "ms (3× alone)"),
    ]),
    row("neighbour with limits: its dials", "/s", { culvert: dials.limited.perSecond }),
  ];
}
