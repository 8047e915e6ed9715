import { setTimeout as sleep } from "node:timers/promises";
import { WHOLE_MATRICES } from "../../harness/counts.ts";
import { flags, serverFiles } from "../../harness/pki-files.ts";
import type { Program } from "../../harness/program.ts";
import { type Check, expect, type Seen, type Stage, since } from "../check.ts";
import { PORTS } from "../world/addresses.ts";
import { SteadyWebhook } from "../world/steady-webhook.ts";
import type { World } from "../world/world.ts";

/** After the end of the old server: calls that begin later must not fail. */
const SETTLED_MS = WHOLE_MATRICES ? 60_000 : 15_000;
/** Between an agent's drain and its end. */
const DRAINED_MS = WHOLE_MATRICES ? 10_000 : 1_000;
const STARTED_MS = 20_000;
const GAP_SECONDS = 2;

/** Ports that the world does not use: of the old server, and from there on of its agents and of ours. */
const STOCK_SERVER_ADMIN = 8_095;
const STOCK_FROM = 8_110;
const OURS_FROM = 8_120;

/** How soon an agent is back with the new server, by the intervals that it was started with. */
const STOCK_AGENTS: readonly StockAgent[] = [
  { agentId: "usual-1", backSeconds: 10, intervals: {} },
  { agentId: "usual-2", backSeconds: 10, intervals: {} },
  {
    agentId: "hypershift",
    backSeconds: 15,
    intervals: { keepaliveTime: "30s", probeInterval: "5s", syncInterval: "5s", syncIntervalCap: "30s" },
  },
];

interface StockAgent {
  readonly agentId: string;
  readonly backSeconds: number;
  readonly intervals: Readonly<Record<string, string>>;
}

/** The migration of docs/konnectivity.md: the server first, and then one agent after the other. */
export const MIGRATION: Check = {
  name: "konnectivity-server gives way to culvert, and then each of its agents",
  deadlineMs: 240_000,
  lanes: ["mixed"],
  run: migrated,
};

async function migrated(stage: Stage): Promise<Seen> {
  const { world } = stage;
  await world.culvert.stop();
  const programs: Program[] = [];
  try {
    return await migrate(stage, programs);
  } finally {
    await Promise.all(programs.map((program) => program.kill()));
    await world.culvert.stop();
  }
}

async function migrate({ world, signal }: Stage, programs: Program[]): Promise<Seen> {
  const old = startStockServer(world);
  programs.push(old);
  const agents = STOCK_AGENTS.map((settings, i) => startStockAgent(world, settings, i));
  programs.push(...agents.map(({ program }) => program));
  await Promise.all(
    agents.map(({ program }) => program.waitUntil(() => connects(program) === 1, STARTED_MS, "a server")),
  );
  await using webhook = new SteadyWebhook(world);
  await webhook.next();
  expect(webhook.failures.length === 0, "calls through konnectivity-server", webhook.failures.join("\n"));

  // By SIGTERM it would wait for its callers, until the kubelet kills it.
  await old.kill();
  const stopped = performance.now();
  await world.culvert.startServer();
  expect(since(stopped) <= GAP_SECONDS, `a gap of ${GAP_SECONDS} s at most`, `${since(stopped)} s`);
  const back = await Promise.all(agents.map((agent) => secondsUntilBack(agent, stopped)));
  await sleep(Math.max(0, stopped + SETTLED_MS - performance.now()), undefined, { signal });

  const failedMeanwhile = webhook.failures.length;
  for (const [i, { program }] of agents.entries()) {
    const ours = world.culvert.startAgentOf("culvert", `ours-${i}`, OURS_FROM + i);
    programs.push(ours);
    await ours.waitForLog(/uplink connected/);
    await drain(program, webhook, world.culvert.server);
  }
  await sleep(DRAINED_MS, undefined, { signal });
  const failed = webhook.failures.slice(failedMeanwhile);
  expect(failed.length === 0, "no failed call after the server's replacement", failed.join("\n"));
  const seconds = back.map((each) => each.toFixed(1)).join(", ");
  const calls = `${webhook.count} calls of a webhook, ${failedMeanwhile} failed while there was no server`;
  return { printed: `agents back after ${seconds} s; ${calls}, 0 later` };
}

/** By the arguments of the page, on the addresses that culvert will have. */
export function startStockServer({ network, assets, culvert, pki }: World): Program {
  const { clusterCert, clusterKey, clusterCaCert } = serverFiles(pki.culvert);
  const options = {
    ...{ mode: "grpc", udsName: culvert.udsName, serverPort: 0, deleteExistingUdsFile: true },
    ...{ agentPort: PORTS.agents, healthPort: PORTS.serverHealth, adminPort: STOCK_SERVER_ADMIN, v: 2 },
    ...{ clusterCert, clusterKey, clusterCaCert },
  };
  return network.controlPlane.start("konnectivity-server", [assets.konnectivity.server, ...flags(options)]);
}

interface Started {
  readonly program: Program;
  readonly backSeconds: number;
}

function startStockAgent({ culvert }: World, { agentId, backSeconds, intervals }: StockAgent, i: number): Started {
  const program = culvert.startAgentOf("konnectivity", agentId, STOCK_FROM + 2 * i, intervals);
  return { program, backSeconds };
}

/** How many times it has found a server. */
function connects({ log }: Program): number {
  return log.filter((line) => line.includes("Connect to server")).length;
}

async function secondsUntilBack({ program, backSeconds }: Started, stopped: number): Promise<number> {
  await program.waitUntil(() => connects(program) === 2, backSeconds * 1_000, "the new server", 20);
  return since(stopped);
}

/**
 * As a kubelet ends its pod: SIGTERM, and later SIGKILL, since one SIGTERM only lets it drain. A connection that is
 * open then ends with it: it may not be in the middle of a call.
 */
async function drain(agent: Program, webhook: SteadyWebhook, server: Program): Promise<void> {
  agent.signal("SIGTERM");
  await agent.waitForLog(/Received first signal/);
  await sleep(DRAINED_MS);
  const ends = () => server.log.filter((line) => /"tunnel (?:lost|closed)"/.test(line)).length;
  const before = ends();
  await webhook.betweenCalls(async () => {
    await agent.kill();
    await server.waitUntil(() => ends() > before, STARTED_MS, "the end of the agent's tunnel", 20);
  });
}
