import assert from "node:assert/strict";
import { test } from "node:test";
import type { ServerOptions } from "../../server/options/options.ts";
import { Balancer } from "../harness/balancer.ts";
import { configurations, located } from "../harness/page-configuration.ts";
import { echoes, SeparateClusters } from "../harness/separate-clusters.ts";
import { freePort } from "../harness/targets/absent.ts";
import { missingProgram } from "../proxies/harness/missing.ts";

const PAGE = "load-balancers.md";
const PROXIED = {
  agentProxyProtocol: "required",
  serverProxyProtocol: "required",
  proxyProtocolTrustedCidrs: ["127.0.0.0/8"],
} as const satisfies Partial<ServerOptions>;

/** Where the page's servers are, of two clusters. */
function backends(clusters: SeparateClusters): Record<string, string> {
  return {
    "10.0.0.11:8091": clusters.address("blue", "agents"),
    "10.0.0.11:8090": clusters.address("blue", "callers"),
    "10.0.0.21:8091": clusters.address("green", "agents"),
    "10.0.0.21:8090": clusters.address("green", "callers"),
  };
}

async function comesThroughByName(clusters: SeparateClusters, port: number): Promise<void> {
  await clusters.startAgents(port);
  for (const name of ["blue", "green"] as const) {
    await using connection = await clusters.connect(name, port);
    await echoes(connection, `hello from ${name}`);
  }
}

test("haproxy passes TLS through with PROXY version 2", { skip: missingProgram("haproxy") }, async () => {
  await using clusters = await SeparateClusters.start(["blue"], PROXIED);
  const [agents, callers] = [await freePort(), await freePort()];
  const text = located(configurations(PAGE, "haproxy")[0] ?? "", {
    ":443": `127.0.0.1:${agents}`,
    ":8443": `127.0.0.1:${callers}`,
    "10.0.0.11:8091": clusters.address("blue", "agents"),
    "10.0.0.11:8090": clusters.address("blue", "callers"),
  });
  await using _balancer = await Balancer.start("haproxy", text, [agents, callers]);
  await clusters.startAgents(agents);
  await using connection = await clusters.connect("blue", callers);
  await echoes(connection, "through haproxy");
  // The header was not only tolerated: without one nobody comes in.
  const past = Number(clusters.address("blue", "callers").split(":")[1]);
  await assert.rejects(clusters.connect("blue", past));
});

test("haproxy passes TLS through by name", { skip: missingProgram("haproxy") }, async () => {
  await using clusters = await SeparateClusters.start(["blue", "green"]);
  const port = await freePort();
  const text = located(configurations(PAGE, "haproxy")[1] ?? "", {
    ":443": `127.0.0.1:${port}`,
    ...backends(clusters),
  });
  await using _balancer = await Balancer.start("haproxy", text, [port]);
  await comesThroughByName(clusters, port);
});

test("nginx passes TLS through by name, with PROXY version 1", { skip: missingProgram("nginx") }, async () => {
  await using clusters = await SeparateClusters.start(["blue", "green"], PROXIED);
  const port = await freePort();
  const text = located(configurations(PAGE, "nginx")[0] ?? "", {
    "listen 443": `listen 127.0.0.1:${port}`,
    ...backends(clusters),
  });
  await using _balancer = await Balancer.start("nginx", text, [port]);
  await comesThroughByName(clusters, port);
});
