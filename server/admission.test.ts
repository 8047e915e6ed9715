import assert from "node:assert/strict";
import { once } from "node:events";
import { test } from "node:test";
import { connect as dialTls } from "node:tls";
import { until } from "../shared/basics/testing/wait.ts";
import { request } from "./testing/insecure-port.ts";
import { agentOf, CONNECT, callerOf, collect, pki, start } from "./testing/server.ts";

test("a CONNECT at the agents' port reads 405 and where callers come in, is logged and counted; an unauthenticated peer reads that it is one", async () => {
  const client = await pki.ca.issue({ cn: "konnectivity-client", usage: "client" });
  await using server = await start();
  const sentence = "this is the port of culvert's agents; callers come to --server-port";
  for (const [by, status, says] of [
    [pki.agent, 405, new RegExp(`\r\nallow: GET\r\n(?:.*\r\n)*\r\n${sentence}\n$`)],
    [client, 403, /is a caller's, not an agent's/],
    [undefined, 401, /no client certificate was sent/],
  ] as const) {
    const socket = dialTls({ port: server.addresses.agents?.port ?? 0, host: "127.0.0.1", ca: pki.ca.cert, ...by });
    socket.on("error", () => {});
    const reads = collect(socket);
    socket.write(`${CONNECT}bytes behind the request`);
    await once(socket, "end");
    assert.match(reads.join(""), new RegExp(`^HTTP/1\\.1 ${status} `));
    assert.match(reads.join(""), says);
    assert.equal(reads.join("").includes("--server-port"), status === 405);
    socket.destroy();
  }
  const told = server.lines.filter(({ msg }) => msg === "agent refused");
  assert.deepEqual(
    told.map(({ code, cluster }) => [code, cluster]),
    [405, 403, 401].map((code) => [code, "default"]),
  );
  assert.equal(told[0]?.["reason"], sentence);
  const metrics = await server.metrics.registry.metrics();
  for (const code of [405, 403, 401]) {
    assert.match(
      metrics,
      new RegExp(`^culvert_server_agents_refused_total\\{cluster="default",code="${code}"\\} 1$`, "m"),
    );
  }
});

test("an agent at the callers' port reads whose port it is, once it has shown a caller's certificate", async () => {
  await using server = await start();
  for (const [by, says] of [
    [pki.caller, /^HTTP\/1\.1 405 .*this is the port of culvert's callers, agents connect to --agent-port\r\n/],
    [undefined, /^HTTP\/1\.1 407 (?!.*--agent-port)/],
  ] as const) {
    const socket = await callerOf(server, by);
    const reads = collect(socket);
    socket.write(request("Host: x"));
    await once(socket, "end");
    assert.match(reads.join(""), says);
    socket.destroy();
  }
});

test("the log says whose certificate was refused, as far as it says so itself", async () => {
  await using server = await start();
  const { cert, key } = await pki.other.issue({ cn: "somebody", usage: "client" });
  const socket = dialTls({ port: server.addresses.agents?.port ?? 0, host: "127.0.0.1", ca: pki.ca.cert, cert, key });
  socket.on("error", () => {}).write(CONNECT);
  await once(socket.resume(), "end");
  const line = server.lines.find(({ msg }) => msg === "agent refused") ?? assert.fail("not logged");
  assert.match(String(line["certificate"]), /^subject CN=[\w-]+, issuer CN=[\w-]+, serial [0-9A-F]+$/);
  socket.destroy();
});

test("a bug of ours in the middle of a hello is an error with its stack; the agent is let go and may come again", async () => {
  await using server = await start();
  const cluster = server.tunnels.clusters.get("default") ?? assert.fail();
  const reserve = cluster.places.reserve.bind(cluster.places);
  cluster.places.reserve = () => {
    throw new TypeError("nobody thought of this");
  };
  await assert.rejects(agentOf(server), /1011/);
  const line = server.lines.find(({ msg }) => msg === "agent refused") ?? assert.fail("not logged");
  assert.equal(line.level, "error");
  assert.match((line["err"] as { stack: string }).stack, /TypeError: nobody thought of this\n\s+at /);
  cluster.places.reserve = reserve;
  await agentOf(server);
});

test("an agent that is refused, or leaves before its hello, is a line without a stack", async () => {
  await using server = await start();
  await agentOf(server);
  const by = await pki.ca.issue({ cn: "another-agent", usage: "client" });
  await assert.rejects(agentOf(server, { by }), { closeCode: 4410 });
  const leaving = dialTls({
    port: server.addresses.agents?.port ?? 0,
    host: "127.0.0.1",
    ca: pki.ca.cert,
    ...pki.agent,
  });
  leaving.on("error", () => {});
  leaving.write(request("Host: x"));
  await once(leaving, "data");
  leaving.destroy();
  const refused = () => server.lines.filter(({ msg }) => msg === "agent refused");
  await until(() => refused().length === 2);
  for (const line of refused()) assert.deepEqual([line.level, line["err"]], ["warn", undefined]);
});
