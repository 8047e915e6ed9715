import assert from "node:assert/strict";
import { once } from "node:events";
import { writeFileSync } from "node:fs";
import { test } from "node:test";
import { connect as connectTls } from "node:tls";
import { routerOptions } from "../../router/options.ts";
import { startRouter } from "../../router/router.ts";
import { defaultsOf } from "../../shared/config/options.ts";
import { createLogger } from "../../shared/runtime/logger.ts";
import { scrapeRegistry } from "../harness/scrape.ts";
import { agentsName, callersName, echoes, SeparateClusters } from "../harness/separate-clusters.ts";
import { TempDir } from "../harness/temp.ts";

const log = createLogger({ level: "silent", format: "json", name: "router" });

// Single connections of a router are tested in router-listener.test.ts; this file has real agents and callers.

test("agents and callers of two clusters come through one router, each to its own server, and others get an alert", async () => {
  const names = ["blue", "green"] as const;
  await using clusters = await SeparateClusters.start(names);
  using dir = new TempDir();
  const routes = dir.file("routes.yaml");
  const route = (sni: string, to: string) => JSON.stringify({ sni: [sni], to: [to] });
  const all = names.flatMap((name) => [
    route(agentsName(name), clusters.address(name, "agents")),
    route(callersName(name), clusters.address(name, "callers")),
  ]);
  writeFileSync(routes, all.join("\n---\n"));
  const ports = { port: 0, healthPort: 0, adminPort: 0, bindAddress: "127.0.0.1", healthBindAddress: "127.0.0.1" };
  const router = await startRouter({ ...defaultsOf(routerOptions), ...ports, routes }, { log, listenEphemeral: true });
  const port = router.addresses.clients?.port ?? 0;
  try {
    await clusters.startAgents(port);
    const scrape = () => scrapeRegistry(router.metrics.registry);
    for (const name of names) {
      assert.equal([...clusters.cluster(name).server.tunnels.tunnels()].length, 1);
      await using connection = await clusters.connect(name, port);
      await echoes(connection, `hello from ${name}`);
      for (const route of [agentsName(name), callersName(name)]) {
        assert.equal((await scrape()).value("culvert_router_connections_total", { route }), 1);
      }
    }
    const nobody = connectTls({ host: "127.0.0.1", port, servername: "nobody.example" });
    assert.match(String((await once(nobody, "error"))[0]), /unrecognized name/i);
  } finally {
    router.destroy(new Error("the test ends"));
  }
});
