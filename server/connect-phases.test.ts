import assert from "node:assert/strict";
import { test } from "node:test";
import { until } from "../shared/basics/testing/wait.ts";
import { encodeAnswer, readOpen } from "../shared/wire/stream-head.ts";
import { StockAgent } from "./konnectivity-agents/testing/stock-agent.ts";
import { askAs, fleetOf } from "./peers/testing/tenant-fleet.ts";
import { agentOf, callerOf, pki, start, type TestServer } from "./testing/server.ts";
import { OpenCaller } from "./testing/tenants.ts";

/** Sum, seconds, and count of each phase. */
async function phasesOf({ metrics }: Pick<TestServer, "metrics">) {
  const text = await metrics.registry.metrics();
  const of = (what: "sum" | "count", phase: string): number => {
    const start = `culvert_server_connect_duration_seconds_${what}{phase="${phase}"} `;
    const line = text.split("\n").find((each) => each.startsWith(start)) ?? assert.fail(start);
    return Number(line.slice(start.length));
  };
  const all = (what: "sum" | "count") => ({
    authenticate: of(what, "authenticate"),
    pick: of(what, "pick"),
    open: of(what, "open"),
    resolve: of(what, "resolve"),
    dial: of(what, "dial"),
  });
  return { sum: all("sum"), count: all("count") };
}

/** The agent says that its steps took so long. */
async function timedAgent(server: TestServer, dnsMs: number, dialMs: number) {
  const agent = await agentOf(server);
  agent.answer = async (stream) => {
    const { timed } = await readOpen(stream, 1_000);
    assert.equal(timed, true);
    stream.write(encodeAnswer({ ok: true, times: { dnsMs, dialMs } }));
  };
  return agent;
}

test("each part of the time until a 200 is counted: the agent's own as it says, and none for the name of an address", async () => {
  await using server = await start();
  await timedAgent(server, 60_000, 3_000);
  const name = await OpenCaller.open(await callerOf(server, pki.caller), "", "kubelet.internal:10250");
  const { sum, count } = await phasesOf(server);
  assert.deepEqual(count, { authenticate: 1, pick: 1, open: 1, resolve: 1, dial: 1 });
  // The agent reports more time than the whole CONNECT took: the rest of the path counts as 0, and never as less.
  assert.deepEqual([sum.open, sum.resolve, sum.dial], [0, 60, 3]);
  const address = await OpenCaller.open(await callerOf(server, pki.caller));
  assert.deepEqual((await phasesOf(server)).count, { authenticate: 2, pick: 2, open: 2, resolve: 1, dial: 2 });
  for (const { socket } of [name, address]) socket.destroy();
});

test("the wait for an agent is a part of pick", async () => {
  await using server = await start({ agentWaitMs: 30_000, connectTimeoutMs: 60_000 });
  const opening = OpenCaller.open(await callerOf(server, pki.caller));
  await until(() => [...server.tunnels.clusters.values()].some(({ pendingConnects }) => pendingConnects === 1));
  const waitsSince = performance.now();
  await until(() => performance.now() - waitsSince > 20);
  await timedAgent(server, 0, 1);
  const { socket } = await opening;
  const { sum } = await phasesOf(server);
  assert.ok(sum.pick > 0.02, `${sum.pick} s`);
  assert.ok(sum.pick > sum.authenticate);
  socket.destroy();
});

test("with a stock agent the time of its dial is in open, and a CONNECT that is refused counts nowhere", async () => {
  await using server = await start();
  const stock = await (await StockAgent.connect(server)).welcomed();
  const { socket } = await OpenCaller.open(await callerOf(server, pki.caller));
  stock.leave();
  await until(() => server.lines.some(({ msg }) => msg === "tunnel closed"));
  await assert.rejects(OpenCaller.open(await callerOf(server, pki.caller)), /503 /);
  assert.deepEqual((await phasesOf(server)).count, { authenticate: 1, pick: 1, open: 1, resolve: 0, dial: 0 });
  socket.destroy();
});

test("over another server a CONNECT is counted where its caller came in, and the way there in open", async () => {
  await using world = await fleetOf(["blue"]);
  const { near, far, tenants } = world;
  const open = await askAs(near, tenants.get("blue"));
  assert.match(open.status, /^HTTP\/1\.1 200 /);
  assert.equal((await phasesOf(near)).count.open, 1);
  assert.equal((await phasesOf(far)).count.open, 0, "the caller is counted where it came in");
  open.socket.destroy();
});
