import assert from "node:assert/strict";
import { test } from "node:test";
import { Scrape } from "../e2e/harness/scrape.ts";
import { until } from "../shared/basics/testing/wait.ts";
import { fetchText } from "./testing/server.ts";
import { agentAt, callerAt, OpenCaller, Tenants } from "./testing/tenants.ts";

async function scrape(port: number | undefined): Promise<Scrape> {
  return new Scrape((await fetchText(port, "/metrics")).text);
}

test("that a cluster has no agent is one expression, and the health port shows the sum without a name", async () => {
  await using tenants = await Tenants.create(["blue", "red"]);
  const server = await tenants.start();
  const red = tenants.get("red");
  const { admin, health } = server.addresses;
  const agents = async (cluster: string): Promise<number> =>
    (await scrape(admin?.port)).value("culvert_server_agents", { cluster });
  const none = await scrape(admin?.port);
  for (const cluster of ["blue", "red"]) {
    for (const name of ["agents", "tunnels", "connections", "established_connections", "pending_opens", "streams"])
      assert.equal(none.sum(`culvert_server_${name}`, { cluster }), 0);
  }
  assert.equal((await scrape(health?.port)).value("culvert_server_agents"), 0);

  const agent = await agentAt(server, undefined, { at: red, by: red.agent });
  const socket = await callerAt(server, red.sni, red.caller);
  await OpenCaller.open(socket);
  await until(async () => (await agents("red")) === 1);
  const all = await scrape(admin?.port);
  for (const name of ["agents", "tunnels", "connections", "established_connections", "streams"]) {
    assert.equal(all.value(`culvert_server_${name}`, { cluster: "red" }), 1, name);
    assert.equal(all.sum(`culvert_server_${name}`, { cluster: "blue" }), 0, name);
  }
  // Numbers at a port are at most a second old.
  await until(async () => (await scrape(health?.port)).value("culvert_server_agents") === 1);
  const some = await scrape(health?.port);
  for (const name of ["agents", "tunnels", "connections", "established_connections", "streams"])
    assert.equal(some.value(`culvert_server_${name}`), 1, name);
  assert.doesNotMatch((await fetchText(health?.port, "/metrics")).text, /"(?:red|blue)"/);

  socket.destroy();
  agent.session.destroy();
  await until(async () => (await agents("red")) === 0);
  await red.remove();
  // Nothing is counted for a cluster that is not configured.
  await until(async () => !/cluster="red"/.test((await fetchText(admin?.port, "/metrics")).text));
});
