import assert from "node:assert/strict";
import { test } from "node:test";
import { until } from "../shared/basics/testing/wait.ts";
import { FakeCollection } from "../shared/kubernetes/testing/fake-collection.ts";
import type { ControlMessage } from "../shared/link/control.ts";
import { LEASES } from "./replicas/leases.ts";
import { agentOf, fetchText, start } from "./testing/server.ts";

test("an agent is told the number of servers in its welcome, and each change of it", async () => {
  await using server = await start({ serverCount: 3 });
  const { welcome, link } = await agentOf(server);
  assert.equal(welcome.servers, 3);
  const messages: ControlMessage[] = [];
  link.watch({ onControl: (message) => messages.push(message) });
  server.servers.set(4);
  server.servers.set(4);
  server.servers.set(2);
  await until(() => messages.length >= 2);
  assert.deepEqual(messages, [
    { type: "servers", count: 4 },
    { type: "servers", count: 2 },
  ]);
  assert.equal((await agentOf(server, { agentId: "b" })).welcome.servers, 2);
});

test("a server that does not know the number of servers says none", async () => {
  await using server = await start();
  const { welcome } = await agentOf(server);
  assert.equal("servers" in welcome, false);
});

test("an agent that looks for another server and finds this one again is no refused agent in the log", async () => {
  await using server = await start();
  await agentOf(server);
  await assert.rejects(agentOf(server), /already_connected/);
  await until(() => server.lines.some(({ msg }) => msg === "agent has a tunnel here"));
  assert.ok(server.lines.every(({ msg }) => msg !== "agent refused"));
});

test("a server that counts tells its agents, shows it to operators, and takes its lease away when it drains", async (t) => {
  const api = await FakeCollection.start(t, LEASES);
  const labels = { "k8s-app": "culvert-server" };
  const spec = { leaseDurationSeconds: 3_600, renewTime: new Date().toISOString() };
  api.put({ metadata: { name: "another", labels }, spec });
  await using server = await start({ enableLeaseController: true, leaseNamespace: "ns", kubeconfig: api.path });
  await until(() => server.servers.value === 2);
  const { welcome } = await agentOf(server);
  assert.equal(welcome.servers, 2);
  const shown = async (path: string) => (await fetchText(server.addresses.admin?.port, path)).text;
  assert.equal(JSON.parse(await shown("/status")).servers, 2);
  assert.match(await shown("/metrics"), /^culvert_server_known_servers 2$/m);
  assert.match(await shown("/readyz?verbose"), /servers.*2 \(leases with k8s-app=culvert-server in namespace ns\)/);
  server.drain();
  await until(() => !api.objects.has("culvert-server-srv-1"));
  assert.ok(api.objects.has("another"));
});
