import assert from "node:assert/strict";
import { once } from "node:events";
import { test } from "node:test";
import type { TLSSocket } from "node:tls";
import { until } from "../../shared/basics/testing/wait.ts";
import { PRESSURE } from "../../shared/limits/memory-account.ts";
import { callerOf, pki, start, type TestServer, within } from "../testing/server.ts";
import { StockAgent } from "./testing/stock-agent.ts";

// Effects of one connection of a konnectivity-agent on its others.

const CHUNK = Buffer.alloc(64 * 1024, "x");

async function connected(server: TestServer): Promise<TLSSocket> {
  const socket = await callerOf(server, pki.caller);
  socket.write("CONNECT 10.0.0.1:10250 HTTP/1.1\r\nHost: x\r\n\r\n");
  const [answer] = await within(once(socket, "data"), "an answer");
  assert.match(String(answer), / 200 /);
  return socket;
}

async function echoes(socket: TLSSocket): Promise<void> {
  socket.write("hello");
  assert.equal(String((await within(once(socket, "data"), "the echo"))[0]), "hello");
}

function tunnelOf(server: TestServer) {
  const [tunnel] = server.tunnels.tunnels();
  return tunnel ?? assert.fail("there is no tunnel");
}

test("a caller that reads nothing holds up nobody; what is held for it is bounded, and then it is ended as stalled", async () => {
  await using server = await start({ sessionBudget: 4 * 1024 * 1024 });
  const agent = await (await StockAgent.connect(server)).welcomed();
  const stalled = (await connected(server)).pause();
  const [connectID] = agent.targets.keys();
  const other = await connected(server);
  let held = 0;
  let sent = 0;
  while (agent.targets.has(connectID ?? 0n)) {
    agent.sendData(connectID ?? 0n, CHUNK);
    sent += CHUNK.length;
    assert.ok(sent < 1024 * 1024 * 1024, "it is ended in the end");
    if (agent.call.writableNeedDrain) await within(once(agent.call, "drain"), "the server reads on");
    held = Math.max(held, tunnelOf(server).bufferedBytes);
    if (sent % (8 * CHUNK.length) === 0) await echoes(other);
  }
  assert.ok(held > 1024 * 1024 && held < 9 * 1024 * 1024, `${held} bytes were held`);
  await until(() => server.lines.some(({ outcome }) => outcome === "stalled"));
  const line = server.lines.find(({ outcome }) => outcome === "stalled");
  assert.equal(line?.msg, "connection ended: its reader had stopped");
  assert.match(String(line["reason"]), /^its reader has stopped or is slow, and .* --session-budget .*: let it read/);
  await until(() => tunnelOf(server).bufferedBytes === 0);
  assert.equal(tunnelOf(server).resetForMemory, 1);
  await echoes(other);
  stalled.destroy();
  agent.leave();
});

test("where a cluster may hold nothing more, its connection that holds most ends, though another one gets bytes", async () => {
  await using server = await start();
  const [large, small] = [
    await (await StockAgent.connect(server)).welcomed(),
    await (await StockAgent.connect(server, { headers: { agentid: "other" } })).welcomed(),
  ];
  await until(() => server.tunnels.clusters.get("default")?.tunnels().size === 2);
  for (let callers = 0; callers < 2; callers++) (await connected(server)).pause();
  const arrives = async (agent: StockAgent) => {
    agent.sendData(1n, CHUNK);
    await until(() => agent.call.writableLength === 0);
    await new Promise((resolve) => agent.session.ping(resolve));
  };
  const tunnels = [...server.tunnels.tunnels()];
  const held = (id: string) => tunnels.find(({ agent }) => agent.agentId === id)?.bufferedBytes ?? assert.fail();
  while (held("other") < CHUNK.length) await arrives(small);
  const memory = server.tunnels.clusters.get("default")?.memory ?? assert.fail();
  // More than half of all that is held, the sockets of the callers included: so it holds most.
  while (held("stock") < 0.6 * memory.held) await arrives(large);
  Object.defineProperty(memory, "pressure", { get: () => (held("stock") > 0 ? PRESSURE.full : PRESSURE.none) });
  await arrives(small);
  await until(() => server.lines.some(({ outcome }) => outcome === "stalled"));
  assert.equal(server.lines.find(({ outcome }) => outcome !== undefined)?.["agent"], "stock");
  assert.ok(held("other") >= CHUNK.length);
  for (const agent of [large, small]) agent.leave();
});

test("a slow caller gets every byte, and nobody waits for it", async () => {
  await using server = await start();
  const agent = await (await StockAgent.connect(server)).welcomed();
  const slow = (await connected(server)).pause();
  const [connectID] = agent.targets.keys();
  for (let times = 0; times < 256; times++) agent.sendData(connectID ?? 0n, CHUNK);
  await until(() => tunnelOf(server).bufferedBytes > 4 * 1024 * 1024);
  await echoes(await connected(server));
  let read = 0;
  slow.on("data", ({ length }: Buffer) => {
    read += length;
  });
  slow.resume();
  await until(() => read === 256 * CHUNK.length);
  agent.close(connectID ?? 0n);
  await until(() => slow.readableEnded);
  agent.leave();
});

test("an agent whose loop stands still is shown so, gets no new dials, and they go to another one", async () => {
  await using server = await start({ agentAckTimeoutMs: 300 });
  const agent = await (await StockAgent.connect(server)).welcomed();
  const first = await connected(server);
  agent.call.pause(); // what a target that stops reading does to the agent
  const filling = setInterval(() => first.writableNeedDrain || first.write(CHUNK), 1);
  const tunnel = tunnelOf(server);
  await until(() => tunnel.standsStill);
  clearInterval(filling);
  const alone = await callerOf(server, pki.caller);
  alone.write("CONNECT 10.0.0.1:10250 HTTP/1.1\r\nHost: x\r\n\r\n");
  assert.match(
    String((await within(once(alone, "data"), "an answer"))[0]),
    /^HTTP\/1.1 504 agent "stock" \(konnectivity-agent\) stands still/,
  );
  const other = await (await StockAgent.connect(server, { headers: { agentid: "other" } })).welcomed();
  await until(() => server.tunnels.clusters.get("default")?.tunnels().size === 2);
  for (let times = 0; times < 3; times++) await echoes(await connected(server));
  assert.equal(other.targets.size, 3);
  agent.call.resume();
  await until(() => !tunnel.standsStill);
  for (const each of [agent, other]) each.leave();
});

test("an agent that does not read a dial in time is passed over, and one that has read it is not", async () => {
  await using server = await start({ agentAckTimeoutMs: 500 });
  const frozen = await (await StockAgent.connect(server)).welcomed();
  const other = await (await StockAgent.connect(server, { headers: { agentid: "other" } })).welcomed();
  await until(() => server.tunnels.clusters.get("default")?.tunnels().size === 2);
  frozen.call.pause();
  for (let times = 0; times < 4; times++) await echoes(await connected(server));
  assert.equal(other.targets.size, 4);
  // The server waits for an agent that reads and dials slowly.
  frozen.leave();
  other.onDial = (address, random) => void setTimeout(() => other.accept(address, random), 1_200);
  await echoes(await connected(server));
  other.leave();
});

test("bytes that are no packets, or an ID given twice, end the tunnel as a violation", async () => {
  await using server = await start();
  const agent = await (await StockAgent.connect(server)).welcomed();
  await until(() => server.lines.some(({ msg }) => msg === "tunnel opened"));
  agent.call.write(Buffer.from([1, 0, 0, 0, 1, 0]));
  assert.match((await agent.refusal()).sentence, /compress/);
  const [line] = server.lines.filter(({ msg }) => msg === "tunnel lost");
  assert.match(String(line?.["reason"]), /compress/);
  const again = await StockAgent.connect(server);
  assert.match((await again.refusal()).sentence, /a tunnel of this agent was ended for a violation: come back in/);
});

test("answers to dials that nobody has made end the tunnel as a violation, and its connection", async () => {
  await using server = await start();
  const agent = await (await StockAgent.connect(server)).welcomed();
  for (let id = 1n; id <= 20_000n && !agent.call.closed; id++) {
    agent.send({ case: "dialResponse", value: { random: 1_000_000n + id, connectID: id, error: "" } });
    if (agent.call.writableNeedDrain) await once(agent.call, "drain").catch(() => {});
  }
  await until(() => server.lines.some(({ msg }) => msg === "tunnel lost"));
  await until(() => agent.session.destroyed);
});

test("a call that its agent ends ends its connection as well", async () => {
  await using server = await start();
  const agent = await (await StockAgent.connect(server)).welcomed();
  agent.call.destroy(new Error("the agent resets its call"));
  await until(() => agent.session.destroyed);
});

test("a token that expires ends nothing that is open: the agent comes back when nothing is", async () => {
  await using server = await start();
  const agent = await (await StockAgent.connect(server)).welcomed();
  const socket = await connected(server);
  tunnelOf(server).rotate("the token expired");
  await echoes(socket);
  await echoes(await connected(server));
  assert.equal(agent.isClosed, false);
  for (const connectID of [...agent.targets.keys()]) agent.close(connectID);
  assert.deepEqual(await agent.refusal(), { status: "14", sentence: "the token expired" });
});
