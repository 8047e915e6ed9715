import assert from "node:assert/strict";
import { test } from "node:test";
import { until } from "../shared/basics/testing/wait.ts";
import { fetchText } from "./testing/server.ts";
import { agentAt, answerOf, callerAt, Tenants } from "./testing/tenants.ts";

test("who was refused stands at the cluster whose listener it came to, and at no other", async () => {
  await using tenants = await Tenants.create(["blue", "red"]);
  const blue = tenants.get("blue");
  await blue.write({ deny: ["10.0.0.0/8"] });
  const server = await tenants.start();
  const { session } = await agentAt(server, "blue", { at: blue, by: blue.agent });
  await assert.rejects(agentAt(server, "blue", { at: blue, by: tenants.get("red").agent }), /401/);
  await assert.rejects(agentAt(server, "blue", { at: blue, by: blue.agent, cluster: "red", agentId: "b" }));
  assert.match(await answerOf(await callerAt(server, blue.sni, blue.caller)), /^HTTP\/1.1 403 /);

  const shown = async () => JSON.parse((await fetchText(server.addresses.admin?.port, "/status")).text);
  await until(
    async () =>
      (await shown()).clusters.find((one: { cluster: string }) => one.cluster === "blue").refusals.length === 3,
  );
  const { clusters } = await shown();
  const refusals = (name: string) =>
    clusters
      .find((one: { cluster: string }) => one.cluster === name)
      .refusals.map(({ side, code, from, target }: Record<string, string>) => [side, code, from, target]);
  assert.deepEqual(refusals("red"), []);
  const [caller, words, stranger] = refusals("blue");
  assert.deepEqual(caller.slice(0, 2).concat(caller[3]), ["caller", "forbidden", "10.0.0.1:10250"]);
  assert.deepEqual(words.slice(0, 2), ["agent", "4403"]);
  assert.match(words[2], /^CN=agent,O=agents:blue$/);
  assert.deepEqual(stranger.slice(0, 3), ["agent", "401", "127.0.0.1"]);
  const metrics = (await fetchText(server.addresses.admin?.port, "/metrics")).text;
  assert.match(metrics, /^culvert_server_agents_refused_total\{cluster="blue",code="401"\} 1$/m);
  assert.match(metrics, /^culvert_server_agents_refused_total\{cluster="blue",code="4403"\} 1$/m);
  session.destroy();
});

for (const shows of [false, true]) {
  test(`the health port ${shows ? "names clusters and files when it is asked to" : "counts them, and names none"}; the admin port names them`, async () => {
    await using tenants = await Tenants.create(["blue"]);
    const blue = tenants.get("blue");
    await blue.write({ callers: { identities: [] } });
    const server = await tenants.start({ healthShowsClusters: shows });
    const { session } = await agentAt(server, "blue", { at: blue, by: blue.agent });
    await blue.write({ callers: { identities: [] }, agents: { streems: 1 } });
    const { health, admin } = server.addresses;
    const said = async (port: number | undefined) => {
      const [ready, metrics] = [await fetchText(port, "/readyz?verbose"), await fetchText(port, "/metrics")];
      assert.deepEqual([ready.status, metrics.status], [200, 200]);
      return { ready: ready.text, metrics: metrics.text };
    };
    await until(async () => /streems/.test((await said(admin?.port)).ready));
    await until(async () => /^culvert_server_cluster_faults 1$/m.test((await said(health?.port)).metrics));
    for (const [port, names] of [
      [admin?.port, true],
      [health?.port, shows],
    ] as const) {
      const { ready, metrics } = await said(port);
      assert.equal(/blue/.test(ready), names, ready);
      assert.equal(/blue/.test(metrics), names, metrics);
      assert.match(metrics, /^konnectivity_network_proxy_server_ready_backend_connections 1$/m);
      assert.match(metrics, /^process_cpu_user_seconds_total \d/m);
      if (names) continue;
      assert.match(ready, /^\[!\]clusters: 1 fault, named at \/readyz\?verbose of the admin port$/m);
      assert.match(ready, /^\[\+\]configuration ok: 1 warning, named at /m);
    }
    session.destroy();
  });
}
