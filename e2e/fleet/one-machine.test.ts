import assert from "node:assert/strict";
import { test } from "node:test";
import { Balancer } from "../harness/balancer.ts";
import { connectThrough } from "../harness/caller.ts";
import { startClusterAgent } from "../harness/cluster-agents.ts";
import { ClusterFolder, numbered } from "../harness/cluster-files.ts";
import { requireBuilt } from "../harness/processes.ts";
import { freePort } from "../harness/targets/absent.ts";
import { missingProgram } from "../proxies/harness/missing.ts";
import { ClusterTargets } from "./harness/cluster-target.ts";
import { scaleConfiguration } from "./harness/haproxy.ts";
import { FINDS_SERVERS_SOON, ServerSlot } from "./harness/server-slot.ts";
import { review } from "./harness/webhook.ts";

const CLUSTERS = numbered("blue", 8);
const PROXIED = {
  ...{ serverProxyProtocol: "required", agentProxyProtocol: "required", proxyProtocolTrustedCidrs: "127.0.0.0/8" },
  ...{ agentWait: "20s", connectTimeout: "30s" },
};

test("two servers on one machine share the clusters out by name, and a restart of one is waited for", {
  skip: missingProgram("haproxy"),
}, async (t) => {
  requireBuilt();
  using folder = await ClusterFolder.create(CLUSTERS);
  await using targets = await ClusterTargets.start(CLUSTERS);
  await using first = await ServerSlot.reserve("01", folder, PROXIED);
  await using second = await ServerSlot.reserve("02", folder, PROXIED);
  const [callers, agents] = [await freePort(), await freePort()];
  const text = scaleConfiguration({ callers, agents }, [first, second]);
  await using _balancer = await Balancer.start("haproxy", text, [callers, agents]);
  await Promise.all([first.start(), second.start()]);
  const started = await Promise.all(
    folder.all.map((cluster) => {
      const allowTarget = [targets.addressOf(cluster.name)];
      return startClusterAgent(cluster, agents, { ...FINDS_SERVERS_SOON, allowTarget });
    }),
  );
  try {
    const shares = [await first.agents(), await second.agents()];
    t.diagnostic(`agents: ${shares}`);
    assert.equal(shares[0] === 0 || shares[1] === 0, false, `${shares}`);
    assert.equal((shares[0] ?? 0) + (shares[1] ?? 0), CLUSTERS.length);
    await reviewEach("before");
    await first.terminate();
    const during = reviewEach("while one restarts");
    await first.start();
    await during;
  } finally {
    for (const agent of started) agent.destroy(new Error("the test is over"));
  }

  /** One CONNECT for each cluster, over TLS by its name. */
  async function reviewEach(when: string): Promise<void> {
    await Promise.all(
      folder.all.map(async (cluster) => {
        const listener = await cluster.listener("tls", callers);
        const connecting = connectThrough(listener, targets.addressOf(cluster.name), { deadlineMs: 60_000 });
        await review(connecting, cluster.name, when);
      }),
    );
  }
});
