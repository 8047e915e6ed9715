import { scaleConfiguration } from "../../fleet/harness/haproxy.ts";
import { ServerSlot } from "../../fleet/harness/server-slot.ts";
import { Balancer } from "../../harness/balancer.ts";
import { ClusterFolder, numbered } from "../../harness/cluster-files.ts";
import { freePort } from "../../harness/targets/absent.ts";
import type { Bench } from "../bench.ts";
import { BenchChild } from "../child.ts";
import type { HandshakeMethods, Visitor } from "../many/handshakes.ts";
import type { Row } from "../rows.ts";
import { median } from "../stats.ts";

const CLUSTERS = 32;
const IN_FLIGHT = 16;
/** Each makes handshakes on one processor. */
const LOADS = 2;
const PROXIED = { serverProxyProtocol: "required", agentProxyProtocol: "required" } as const;

/** Mutual handshakes of callers at one server process, and at two that share the clusters (docs/scale.md). */
export async function processes(bench: Bench): Promise<Row[]> {
  if (!bench.culvert) return [];
  using folder = await ClusterFolder.create(numbered("blue", CLUSTERS));
  const rows: Row[] = [];
  for (const count of [1, 2] as const) rows.push(...(await measure(bench, folder, count)));
  return rows;
}

async function measure(bench: Bench, folder: ClusterFolder, count: 1 | 2): Promise<Row[]> {
  const [callers, agents] = [await freePort(), await freePort()];
  const loads = Array.from({ length: LOADS }, () => new BenchChild<HandshakeMethods>("many/handshakes.ts"));
  const names = ["01", "02"].slice(0, count);
  const servers: ServerSlot[] = [];
  try {
    for (const name of names) {
      const flags = { ...PROXIED, proxyProtocolTrustedCidrs: "127.0.0.0/8", logLevel: "warn" };
      servers.push(await ServerSlot.reserve(`${count}-${name}`, folder, flags));
    }
    await using _balancer = await Balancer.start("haproxy", scaleConfiguration({ callers, agents }, servers), [
      callers,
    ]);
    for (const server of servers) await server.start();
    const more: Visitor[] = [];
    for (const cluster of folder.all) {
      more.push({ servername: cluster.sni, ca: cluster.ca, ...(await cluster.callerPair) });
    }
    for (const load of loads) {
      await load.call("invite", { more });
      await load.call("visitAll", { port: callers, clusters: CLUSTERS });
    }
    return await sample(bench, { loads, servers, port: callers });
  } finally {
    for (const load of loads) await load[Symbol.asyncDispose]();
    for (const server of servers) await server[Symbol.asyncDispose]();
  }
}

interface Parts {
  readonly loads: readonly BenchChild<HandshakeMethods>[];
  readonly servers: readonly ServerSlot[];
  readonly port: number;
}

async function sample(bench: Bench, { loads, servers, port }: Parts): Promise<Row[]> {
  const { rounds, seconds } = bench.settings;
  const cpu = () => servers.reduce((sum, { process }) => sum + process.cpuSeconds(), 0);
  const [rates, costs]: [number[], number[]] = [[], []];
  for (let round = 0; round < rounds; round++) {
    bench.say(`${servers.length} processes, round ${round + 1}`);
    const before = cpu();
    const samples = loads.map((load) => load.call("rate", { port, clusters: CLUSTERS, inFlight: IN_FLIGHT, seconds }));
    const perSecond = (await Promise.all(samples)).reduce((sum, each) => sum + each.perSecond, 0);
    rates.push(perSecond);
    costs.push(((cpu() - before) * 1_000) / (perSecond * seconds));
  }
  const label = `mutual handshakes, ${servers.length === 1 ? "1 process" : `${servers.length} processes`}`;
  const row = (what: string, unit: string, value: number): Row => {
    return { group: "processes", label: what, unit, figures: { culvert: value }, goals: [] };
  };
  return [row(label, "/s", median(rates)), row(`${label}: each costs the servers`, "CPU ms", median(costs))];
}
