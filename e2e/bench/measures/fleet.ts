import { setTimeout as sleep } from "node:timers/promises";
import { waitFor } from "../../harness/wait.ts";
import type { Bench } from "../bench.ts";
import { ServerFleet } from "../fleet/server-fleet.ts";
import type { Row } from "../rows.ts";

const CLUSTERS = 1_000;
const AGENTS_EACH = 2;
const AGENTS = CLUSTERS * AGENTS_EACH;
const FIRST = ["a", "b", "c"];
const MORE = ["d", "e"];
const REST_MS = 10_000;
const PATIENCE_MS = 180_000;
const KIB = 1_024;
const MIB = 1_048_576;

/** Three servers that find a thousand clusters by NATS: what a cluster and an agent cost, and how long changes take. */
export async function fleet(bench: Bench): Promise<Row[]> {
  if (!bench.culvert) return [];
  bench.say(`fleet: certificates of ${CLUSTERS} clusters`);
  await using world = await ServerFleet.prepare([...FIRST, ...MORE], CLUSTERS);
  const [first, more] = [world.servers.slice(0, FIRST.length), world.servers.slice(FIRST.length)];
  bench.say("fleet: three servers");
  for (const server of first) {
    await server.start();
    await server.whenReady();
  }
  await sleep(REST_MS);
  const loaded = rssBytes(world);
  bench.say(`fleet: ${AGENTS} agents gather`);
  await world.gather(AGENTS_EACH);
  await whole(world);
  await sleep(REST_MS);
  const connected = rssBytes(world);
  const cpuBefore = cpuSecondsOf(world);
  const rest = await messagesDuring(world, () => sleep(REST_MS));
  const cpuAtRest = cpuSecondsOf(world) - cpuBefore;

  bench.say("fleet: a server is killed");
  const victim = first[0];
  if (victim === undefined) return [];
  const lost = await victim.agents();
  await victim.kill();
  const storm = await messagesDuring(world, () => whole(world));
  bench.say(`fleet: its ${lost} agents are back`);
  await victim.start();
  await victim.whenReady();

  bench.say("fleet: two more servers");
  const begun = performance.now();
  await Promise.all(more.map((server) => server.start()));
  for (const server of more) {
    await server.whenReady();
    await waitFor(() => world.watch.knows(server.name), { deadlineMs: PATIENCE_MS, what: server.name });
  }
  const grownS = (performance.now() - begun) / 1_000;

  const row = (label: string, unit: string, value: number): Row => {
    return { group: "fleet", label, unit, figures: { culvert: value }, goals: [] };
  };
  return [
    row(`server with ${CLUSTERS} clusters, no agents: RSS`, "MiB", loaded / FIRST.length / MIB),
    row(`server with ${CLUSTERS} clusters and ${AGENTS} / 3 agents: RSS`, "MiB", connected / FIRST.length / MIB),
    row("an agent and the TLS of its cluster, at its server", "KiB", (connected - loaded) / AGENTS / KIB),
    row("at rest: CPU for 1,000 agents", "ms/s", (cpuAtRest * 1e6) / AGENTS / rest.seconds),
    row("NATS, at rest: messages in", "/s", rest.messages / rest.seconds),
    row("a server killed → its agents are back, its clusters found", "s", storm.seconds),
    row("until then: NATS messages in", "/s", storm.messages / storm.seconds),
    row("two more servers started → ready, and known to all", "s", grownS),
  ];
}

/** Resolves when every agent is connected, and the directory leads to a living server for each cluster. */
async function whole(world: ServerFleet): Promise<void> {
  const allBack = async () => (await world.crowd.call("state", {})).connected === AGENTS;
  await waitFor(allBack, { deadlineMs: PATIENCE_MS, everyMs: 20, what: `${AGENTS} agents` });
  const allHeld = async () => (await world.heldClusters()) === CLUSTERS;
  await waitFor(allHeld, { deadlineMs: PATIENCE_MS, everyMs: 20, what: `${CLUSTERS} clusters in the directory` });
}

/** Messages that servers have sent to NATS meanwhile; those of this bench are not among them. */
async function messagesDuring(world: ServerFleet, action: () => Promise<unknown>) {
  const before = await world.nats.messagesIn();
  const asked = world.watch.messages;
  const begun = performance.now();
  await action();
  const seconds = (performance.now() - begun) / 1_000;
  // Each question of the bench was answered by a server: two messages.
  const messages = (await world.nats.messagesIn()) - before - 2 * (world.watch.messages - asked);
  return { messages, seconds };
}

function cpuSecondsOf({ running }: ServerFleet): number {
  return running.reduce((sum, { process }) => sum + process.cpuSeconds(), 0);
}

function rssBytes({ running }: ServerFleet): number {
  return running.reduce((sum, { process }) => sum + process.rssBytes(), 0);
}
