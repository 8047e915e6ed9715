import assert from "node:assert/strict";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { until } from "../../shared/basics/testing/wait.ts";
import { encodeAnswer, type OpenRequest, readOpen } from "../../shared/wire/stream-head.ts";
import type { ConnectCheck } from "../operators/connect-check.ts";
import { CONNECT, pki } from "../testing/server.ts";
import { ask, Fleet, linesOf, peerLeaf } from "./testing/fleet.ts";

test("a CONNECT at a server without an agent of its cluster goes to the one that has it, and both logs have one id", async () => {
  await using fleet = new Fleet();
  const { near, far } = await fleet.pair();
  const caller = await ask(near);
  assert.match(caller.status, /^HTTP\/1\.1 200 /);
  caller.socket.write("over two servers");
  await until(() => caller.text.endsWith("over two servers"));
  caller.socket.end();
  await until(() => linesOf(near, "connection closed").length > 0);
  const mine = linesOf(near, "connection closed")[0];
  assert.deepEqual(
    [mine?.["outcome"], mine?.["agent"], mine?.["peer"], mine?.["bytesUp"]],
    ["ok", "blue", "srv-2", 16],
  );
  await until(() => linesOf(far, "connection of a peer closed").length > 0);
  const theirs = linesOf(far, "connection of a peer closed")[0];
  assert.deepEqual(
    [theirs?.["outcome"], theirs?.["agent"], theirs?.["peer"], theirs?.["bytesDown"]],
    ["ok", "blue", "srv-1", 16],
  );
  assert.equal(theirs?.["id"], mine?.["id"]);
});

test("the trace of a CONNECT goes over the hop to the agent", async () => {
  await using fleet = new Fleet();
  const { near, agent } = await fleet.pair({ otlpEndpoint: "http://127.0.0.1:9", traceSamplingRatePerMillion: 0 });
  let head: OpenRequest | undefined;
  agent.answer = async (stream) => {
    head = await readOpen(stream, 1_000);
    stream.write(encodeAnswer({ ok: true }));
  };
  const trace = "4bf92f3577b34da6a3ce929d0e0e4736";
  const { status } = await ask(near, CONNECT.replace(/\r\n$/, `Traceparent: 00-${trace}-00f067aa0ba902b7-01\r\n\r\n`));
  assert.match(status, /^HTTP\/1\.1 200 /);
  // The span of the CONNECT at the first server.
  assert.match(head?.traceparent ?? "", new RegExp(`^00-${trace}-(?!00f067aa0ba902b7)[0-9a-f]{16}-01$`));
});

test("a new certificate of a server is shown to its peers while connections over them go on", async () => {
  await using fleet = new Fleet();
  const { near, far } = await fleet.pair();
  const caller = await ask(near);
  const { cert, key } = await pki.ca.issue(peerLeaf("srv-1"));
  await writeFile(join(pki.folder, "srv-1.key"), key);
  await writeFile(join(pki.folder, "srv-1.crt"), cert);
  await until(() => linesOf(near, "peer link resumed").length > 0);
  caller.socket.write("goes on");
  await until(() => caller.text.endsWith("goes on"));
  assert.match((await ask(near)).status, /^HTTP\/1\.1 200 /);
  assert.equal(linesOf(far, "peer link accepted").length, 2, "verified anew");
});

test("the doctor is told over which server its connection went", async () => {
  await using fleet = new Fleet();
  const { near } = await fleet.pair();
  const url = `http://127.0.0.1:${near.addresses.admin?.port}/trial`;
  const body = JSON.stringify({ cluster: "default", target: "10.0.0.1:10250" });
  const response = await fetch(url, { method: "POST", body, headers: { "content-type": "application/json" } });
  const check = (await response.json()) as ConnectCheck;
  assert.match(check.sentence, /is reached, through agent "blue" of server "srv-2"$/);
  assert.deepEqual(
    check.steps.map(({ step, state }) => `${step} ${state}`),
    ["server passed", "link passed", "dns skipped", "dial passed"],
  );
});
