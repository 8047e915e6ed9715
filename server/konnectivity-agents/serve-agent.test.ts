import assert from "node:assert/strict";
import { once } from "node:events";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import type { TLSSocket } from "node:tls";
import { until } from "../../shared/basics/testing/wait.ts";
import { agentOf, callerOf, collect, fetchText, pki, start, type TestServer, within } from "../testing/server.ts";
import { StockAgent } from "./testing/stock-agent.ts";

async function connectTo(
  server: TestServer,
  target = "10.0.0.1:10250",
): Promise<{ socket: TLSSocket; answer: string }> {
  const socket = await callerOf(server, pki.caller);
  socket.write(`CONNECT ${target} HTTP/1.1\r\nHost: x\r\n\r\n`);
  const [answer] = await within(once(socket, "data"), "an answer");
  return { socket, answer: String(answer) };
}

/** Lines of the log with this message. */
function logged(server: TestServer, message: string) {
  return server.lines.filter(({ msg }) => msg === message);
}

test("an agent by certificate reads which server it is, and carries a CONNECT both ways", async () => {
  await using server = await start({ serverCount: 3 });
  const agent = await (await StockAgent.connect(server)).welcomed();
  assert.deepEqual([agent.welcome?.["serverid"], agent.welcome?.["servercount"]], ["srv-1", "3"]);
  const { socket, answer } = await connectTo(server);
  assert.match(answer, /^HTTP\/1.1 200 /);
  const read = collect(socket);
  const bytes = "x".repeat(1024 * 1024);
  socket.write(bytes);
  await until(() => read.join("").length === bytes.length);
  assert.deepEqual(
    [...agent.targets.values()].map(({ address }) => address),
    ["10.0.0.1:10250"],
  );
  const [opened] = logged(server, "tunnel opened");
  assert.deepEqual(
    ["agent", "protocol", "identity", "software"].map((field) => opened?.[field]),
    ["stock", "konnectivity", "CN=konnectivity-agent", "konnectivity-agent (grpc-go/1.81.1)"],
  );
  const status = JSON.parse((await fetchText(server.addresses.admin?.port, "/status")).text);
  const [shown] = status.clusters[0].tunnels;
  assert.deepEqual([shown.protocol, shown.standsStill, shown.streams], ["konnectivity", false, 1]);
  assert.equal(typeof shown.roundTripMs, "number");
  agent.leave();
  await until(() => logged(server, "tunnel closed").length === 1);
});

test("the caller's end is CLOSE_REQ, and what the target has sent before arrives; the target's end is the caller's", async () => {
  await using server = await start();
  const agent = await (await StockAgent.connect(server)).welcomed();
  const first = await connectTo(server);
  const read = collect(first.socket);
  first.socket.end("last words");
  await until(() => first.socket.readableEnded);
  assert.equal(read.join(""), "last words");
  assert.deepEqual(agent.packets.at(-1), {
    case: "closeRequest",
    value: { ...agent.packets.at(-1)?.value, connectID: 1n },
  });
  const second = await connectTo(server);
  const more = collect(second.socket);
  agent.sendData(2n, Buffer.from("and this"));
  agent.close(2n);
  await until(() => second.socket.readableEnded);
  assert.equal(more.join(""), "and this");
  agent.leave();
});

for (const [error, status] of [
  ["dial tcp 10.0.0.1:10250: connect: connection refused", "502"],
  ["dial tcp 10.0.0.1:10250: i/o timeout", "504"],
  ["dial tcp: lookup nowhere: no such host", "502"],
  ["something new", "502"],
]) {
  test(`a dial that fails with "${error}" is ${status} with the agent's sentence`, async () => {
    await using server = await start();
    const agent = await (await StockAgent.connect(server)).welcomed();
    agent.onDial = (_, random) => agent.refuse(random, error ?? "");
    const { answer } = await connectTo(server);
    assert.match(answer, new RegExp(`^HTTP/1.1 ${status} ${error?.replace("/", "\\/")}`));
    agent.leave();
  });
}

test("a DIAL_RSP that comes after its caller has gone is answered with CLOSE_REQ", async () => {
  await using server = await start();
  const agent = await (await StockAgent.connect(server)).welcomed();
  let dialled: bigint | undefined;
  agent.onDial = (_, random) => {
    dialled = random;
  };
  const socket = await callerOf(server, pki.caller);
  socket.write("CONNECT 10.0.0.1:10250 HTTP/1.1\r\nHost: x\r\n\r\n");
  await until(() => dialled !== undefined);
  socket.destroy();
  await until(() => logged(server, "CONNECT failed").length === 1);
  const connectID = agent.accept("10.0.0.1:10250", dialled ?? 0n);
  await until(() =>
    agent.packets.some(
      ({ case: name, value }) => name === "closeRequest" && "connectID" in value && value.connectID === connectID,
    ),
  );
  agent.leave();
});

test("an agent that is killed ends its connections, and its tunnel is lost", async () => {
  await using server = await start();
  const agent = await (await StockAgent.connect(server)).welcomed();
  const { socket } = await connectTo(server);
  agent.kill();
  await until(() => socket.destroyed);
  await until(() => logged(server, "tunnel lost").length === 1);
  assert.deepEqual(
    logged(server, "connection closed").map(({ outcome }) => outcome),
    ["agent_lost"],
  );
});

// ── refusals ─────────────────────────────────────────────────────────────────────────────────────────────────────────

test("an agent without a certificate gets UNAUTHENTICATED with the server's sentence, and so does its log", async () => {
  await using server = await start();
  const agent = await StockAgent.connect(server, { by: { cert: "", key: "" } });
  const { status, sentence } = await agent.refusal();
  assert.equal(status, "16");
  assert.match(sentence, /^no client certificate that is accepted came: --agent-cert must be signed by "cn=/);
  const [line] = logged(server, "agent refused");
  assert.equal(line?.["reason"], sentence);
  assert.equal(line?.["code"], 401);
});

test("an agent id of another certificate is ALREADY_EXISTS, a bad one INVALID_ARGUMENT", async () => {
  await using server = await start();
  const other = await pki.ca.issue({ cn: "another-agent", usage: "client" });
  const agent = await (await StockAgent.connect(server)).welcomed();
  const duplicate = await (await StockAgent.connect(server, { by: other })).refusal();
  assert.deepEqual([duplicate.status, /belongs to another certificate/.test(duplicate.sentence)], ["6", true]);
  const bad = await (await StockAgent.connect(server, { headers: { agentid: "no id" } })).refusal();
  assert.deepEqual([bad.status, /--agent-id/.test(bad.sentence)], ["3", true]);
  const claims = await (await StockAgent.connect(server, { headers: { agentidentifiers: "ipv4=x" } })).refusal();
  assert.deepEqual([claims.status, /--agent-identifiers: ipv4="x"/.test(claims.sentence)], ["3", true]);
  assert.equal(agent.isClosed, false);
  agent.leave();
});

test("without --konnectivity-agents a stock agent gets PERMISSION_DENIED with the sentence", async () => {
  await using server = await start({ konnectivityAgents: false });
  const { status, sentence } = await (await StockAgent.connect(server)).refusal();
  assert.deepEqual(
    [status, /^cluster "default" takes culvert agents only \(--konnectivity-agents/.test(sentence)],
    ["7", true],
  );
  await until(() => logged(server, "agent refused").length === 1);
  assert.deepEqual(logged(server, "agent refused")[0]?.["reason"], sentence);
});

// ── one agent, several connections ───────────────────────────────────────────────────────────────────────────────────

test("an agent that looks for further servers finds this one again, and its tunnel does not notice", async () => {
  await using server = await start();
  const agent = await (await StockAgent.connect(server)).welcomed();
  const { socket } = await connectTo(server);
  for (let times = 0; times < 3; times++) {
    const again = await (await StockAgent.connect(server)).welcomed();
    assert.equal(again.welcome?.["serverid"], "srv-1");
    again.leave();
    await until(() => again.isClosed);
  }
  socket.write("still here");
  assert.equal(String((await within(once(socket, "data"), "the echo"))[0]), "still here");
  assert.equal(logged(server, "tunnel opened").length, 1);
  assert.equal(logged(server, "agent refused").length, 0);
  agent.leave();
});

test("so it is on a slow line, where it takes seconds to find that out", async () => {
  await using server = await start();
  const agent = await (await StockAgent.connect(server)).welcomed();
  const again = await (await StockAgent.connect(server)).welcomed();
  await sleep(2_000);
  assert.equal(again.isClosed, false);
  again.leave();
  await until(() => again.isClosed);
  assert.deepEqual([logged(server, "agent refused"), agent.isClosed], [[], false]);
  agent.leave();
});

test("a second process with the id of one that runs is ALREADY_EXISTS; the first stays", async () => {
  await using server = await start();
  const agent = await (await StockAgent.connect(server)).welcomed();
  const { status, sentence } = await (await StockAgent.connect(server)).refusal();
  assert.deepEqual([status, /another running process uses agent id "stock"/.test(sentence)], ["6", true]);
  assert.equal(agent.isClosed, false);
  agent.leave();
});

test("an agent that comes back takes the place of its connection that answers nothing any more", async () => {
  await using server = await start();
  const lost = await (await StockAgent.connect(server)).welcomed();
  lost.call.pause();
  const agent = await (await StockAgent.connect(server)).welcomed();
  await until(() => logged(server, "tunnel opened").length === 2);
  const { answer } = await connectTo(server);
  assert.match(answer, / 200 /);
  assert.equal(agent.targets.size, 1);
  for (const each of [lost, agent]) each.leave();
});

test("stock agents and culvert's serve one cluster side by side", async () => {
  await using server = await start();
  const stock = await (await StockAgent.connect(server)).welcomed();
  const own = await agentOf(server, { agentId: "own" });
  for (let times = 0; times < 4; times++) assert.match((await connectTo(server)).answer, / 200 /);
  assert.equal(stock.targets.size, 2);
  stock.leave();
  own.session.destroy();
});

// ── the end ──────────────────────────────────────────────────────────────────────────────────────────────────────────

test("an agent that sends DRAIN gets no new connections, and keeps those that are open", async () => {
  await using server = await start();
  const agent = await (await StockAgent.connect(server)).welcomed();
  const { socket } = await connectTo(server);
  agent.send({ case: "drain", value: {} });
  await until(() => [...server.tunnels.tunnels()].every(({ draining }) => draining));
  assert.match((await connectTo(server)).answer, / 503 /);
  socket.write("open");
  assert.equal(String((await within(once(socket, "data"), "the echo"))[0]), "open");
  agent.leave();
});

test("a server that drains keeps a stock agent until its last connection has ended, and then says UNAVAILABLE", async () => {
  await using server = await start();
  const agent = await (await StockAgent.connect(server)).welcomed();
  const { socket } = await connectTo(server);
  server.drain();
  socket.write("open");
  assert.equal(String((await within(once(socket, "data"), "the echo"))[0]), "open");
  assert.equal(agent.isClosed, false);
  socket.end();
  const { status, sentence } = await agent.refusal();
  assert.deepEqual([status, sentence], ["14", "this server is shutting down"]);
});
