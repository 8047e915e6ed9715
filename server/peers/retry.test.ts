import assert from "node:assert/strict";
import { once } from "node:events";
import { type AddressInfo, createServer } from "node:net";
import { test } from "node:test";
import { until } from "../../shared/basics/testing/wait.ts";
import { encodeAnswer, readOpen } from "../../shared/wire/stream-head.ts";
import { agentOf } from "../testing/server.ts";
import { ask, Fleet, linesOf } from "./testing/fleet.ts";

/** An address where TCP is accepted and nothing is ever said, as behind a partition. */
async function silentAddress() {
  const server = createServer((socket) => socket.on("error", () => {})).listen(0, "127.0.0.1");
  await once(server, "listening");
  return { address: `127.0.0.1:${(server.address() as AddressInfo).port}`, [Symbol.dispose]: () => server.close() };
}

/** An address where nobody listens. */
async function deadAddress(): Promise<string> {
  using silent = await silentAddress();
  return silent.address;
}

test("a server that is dead or silent is passed over for another one, once and before a byte was sent", async () => {
  using silent = await silentAddress();
  for (const address of [await deadAddress(), silent.address]) {
    await using fleet = new Fleet();
    const { near } = await fleet.pair({ agentAckTimeoutMs: 1_500 });
    let forgeries = 1;
    fleet.hub.forged = () => (forgeries-- > 0 ? { serverId: "srv-3", address } : undefined);
    assert.match((await ask(near)).status, /^HTTP\/1\.1 200 /);
    assert.match((await ask(near)).status, /^HTTP\/1\.1 200 /);
    const notReached = linesOf(near, "peer not reached");
    assert.equal(notReached.length, 1);
  }
});

test("where the second server is of no use either, the caller reads the truth and waits no longer", async () => {
  await using fleet = new Fleet();
  const near = await fleet.start("srv-1");
  let asked = 0;
  const addresses = [await deadAddress(), await deadAddress()] as const;
  fleet.hub.forged = () => ({ serverId: `srv-${2 + (asked % 2)}`, address: addresses[asked++ % 2] ?? "" });
  assert.match(
    (await ask(near)).status,
    /^HTTP\/1\.1 502 server "srv-3" cannot be reached from server "srv-1": the log of "srv-1" says why$/,
  );
  assert.equal(asked, 2);
  const notReached = linesOf(near, "peer not reached");
  assert.deepEqual(
    notReached.map(({ remote }) => remote),
    addresses,
    "the log has the address and the reason, which tenants do not read",
  );
  const line = linesOf(near, "CONNECT failed")[0];
  assert.deepEqual([line?.["outcome"], line?.["peer"]], ["peer_lost", "srv-3"]);
});

test("code and sentence of the agent come back as they were, over two servers as over one", async () => {
  await using fleet = new Fleet();
  const { near, far, agent } = await fleet.pair();
  agent.answer = async (stream) => {
    await readOpen(stream, 1_000);
    stream.end(encodeAnswer({ ok: false, error: "dial_refused", detail: "10.0.0.1:10250 refused the connection" }));
  };
  const [direct, hop] = [await ask(far), await ask(near)];
  assert.equal(hop.text.replace(/^Date:.*$/m, ""), direct.text.replace(/^Date:.*$/m, ""));
  assert.match(hop.text, /^HTTP\/1\.1 502 10\.0\.0\.1:10250 refused the connection\r\n/);
  assert.match(hop.text, /error=connection_refused; refused-by=agent/);
  assert.equal(linesOf(near, "CONNECT failed")[0]?.["endedBy"], "agent");
});

test("a refusal of the other server itself says which server it is", async () => {
  await using fleet = new Fleet();
  const { near, far, agent } = await fleet.pair({ agentWaitMs: 50 }, { maxPendingConnects: 1 });
  agent.answer = async () => {}; // it has taken the stream, and says nothing
  const first = ask(near);
  await until(() => far.tunnels.clusters.get("default")?.pendingConnects === 1);
  assert.match((await ask(near)).status, /^HTTP\/1\.1 503 server "srv-2": too many CONNECTs wait for an answer \(1,/);
  near.destroy(new Error("killed by the test"));
  await first;
});

test("the deadline travels along: the caller reads what the other server says of its agent, in time", async () => {
  await using fleet = new Fleet();
  const { near, agent } = await fleet.pair({ connectTimeoutMs: 2_000 }, { connectTimeoutMs: 60_000 });
  agent.answer = async () => {}; // it has taken the stream, and says nothing
  let { status } = await ask(near);
  // On a busy machine the other server's answer may miss its margin of 50 ms.
  for (let again = 0; again < 4 && status.includes("srv-"); again++) ({ status } = await ask(near));
  assert.match(
    status,
    /^HTTP\/1\.1 504 agent "blue" took the request for 10\.0\.0\.1:10250 but did not answer in time/,
  );
  assert.ok(Number(linesOf(near, "CONNECT failed")[0]?.["durationMs"]) < 15_000);
});

test("a server that is silent while it is dialled does not keep the caller beyond its deadline", async () => {
  using silent = await silentAddress();
  await using fleet = new Fleet();
  const near = await fleet.start("srv-1", { connectTimeoutMs: 300, agentAckTimeoutMs: 30_000 });
  fleet.hub.forged = () => ({ serverId: "srv-2", address: silent.address });
  assert.match((await ask(near)).status, /^HTTP\/1\.1 502 server "srv-2" was not reached in time/);
  const line = linesOf(near, "CONNECT failed")[0];
  assert.ok(Number(line?.["durationMs"]) < 15_000, String(line?.["durationMs"]));
});

test("a caller that leaves takes its stream at the other server and at the agent with it", async () => {
  await using fleet = new Fleet();
  const { near, far, agent } = await fleet.pair();
  agent.answer = async () => {};
  const asked = ask(near);
  await until(() => agent.streams.length === 1);
  near.destroy(new Error("killed by the test"));
  await asked;
  await until(() => agent.streams[0]?.destroyed === true);
  await until(() =>
    far.lines.some(({ msg, outcome }) => msg === "CONNECT of a peer failed" && outcome === "caller_gone"),
  );
});

test("a server that drains is named no more, keeps the streams of its peers to their end, and takes no new ones", async () => {
  await using fleet = new Fleet();
  const { near, far } = await fleet.pair({ agentWaitMs: 50 }, { drainTimeoutMs: 10_000 });
  const open = await ask(near);
  const closed = far.close();
  await fleet.holders();
  assert.match((await ask(near)).status, /^HTTP\/1\.1 503 /);
  open.socket.write("to the end");
  await until(() => open.text.endsWith("to the end"));
  open.socket.end();
  await closed;
});

test("a server whose agents leave is asked no more, and is not taken for one that hangs", async () => {
  await using fleet = new Fleet();
  const { near, far, agent: first } = await fleet.pair({ agentWaitMs: 50 });
  const ways = [
    (agent: typeof first) => agent.session.drain(),
    (agent: typeof first) => agent.link.sendControl({ type: "drain", retryAfterMs: 0 }),
    () => void [...far.tunnels.tunnels()].at(-1)?.close(10_000),
  ];
  for (const [number, leave] of ways.entries()) {
    const agent = number === 0 ? first : await agentOf(far, { agentId: `agent-${number}` });
    await fleet.holders("srv-2");
    const open = await ask(far);
    assert.match(open.status, /^HTTP\/1\.1 200 /);
    leave(agent);
    await fleet.holders();
    const { status } = await ask(near);
    assert.match(status, /^HTTP\/1\.1 503 no agent of cluster "default" is connected/);
    assert.doesNotMatch(status, /does not respond/);
    open.socket.write("to the end");
    await until(() => open.text.endsWith("to the end"));
  }
});
