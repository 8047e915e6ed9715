import assert from "node:assert/strict";
import { test } from "node:test";
import { connectThrough } from "../harness/caller.ts";
import { ClusterAgents } from "../harness/cluster-agents.ts";
import { ClusterFolder, numbered } from "../harness/cluster-files.ts";
import { ClusterNetworks } from "../harness/cluster-networks.ts";
import { startClusterServer } from "../harness/cluster-server.ts";
import { runConcurrently } from "../harness/concurrently.ts";
import { atFull } from "../harness/counts.ts";
import { Random, seedOfRun } from "../harness/random.ts";

const CLUSTERS = atFull(100, 20);
const AGENTS = 2;
const CONNECTS = atFull(5_000, 400, 1_000);

test(`${CLUSTERS} clusters with one target address: each of ${CONNECTS} random CONNECTs is answered by its own cluster`, async (t) => {
  const names = numbered("blue", CLUSTERS);
  using folder = await ClusterFolder.create(names);
  using server = await startClusterServer(folder);
  await using networks = await ClusterNetworks.create(CLUSTERS, (socket, network) => {
    socket.on("data", (question) => socket.end(`${names[network]} hears ${question}`));
  });
  using agents = new ClusterAgents();
  await runConcurrently(CLUSTERS * AGENTS, 16, async (index) => {
    const network = index % CLUSTERS;
    // Alike in every cluster, as the target is.
    const agentId = `node-${Math.floor(index / CLUSTERS)}`;
    const cluster = folder.get(names[network] as string);
    await networks.inside(network, () => agents.start(cluster, server.agentPort, agentId));
  });

  const seed = seedOfRun();
  t.diagnostic(`CULVERT_E2E_SEED=${seed}`);
  const random = new Random(seed);
  const asked = names.map(() => 0);
  const draws = Array.from({ length: CONNECTS }, () => ({
    network: random.between(0, CLUSTERS - 1),
    via: random.pick<"tls" | "uds">(["tls", "uds"]),
  }));
  await runConcurrently(CONNECTS, 32, async (index) => {
    const { network, via } = draws[index] as (typeof draws)[number];
    const cluster = folder.get(names[network] as string);
    await using connection = await connectThrough(await cluster.listener(via, server.callerPort), networks.target);
    assert.equal(connection.status, 200, `${cluster.name}: ${connection.reason}`);
    await connection.send(`number ${index}`);
    assert.equal(await connection.readAll(), `${cluster.name} hears number ${index}`);
    asked[network] = (asked[network] ?? 0) + 1;
  });
  assert.deepEqual(
    names.map((_, network) => networks.at(network).accepted),
    asked,
    "and nobody else was dialled",
  );
});
