import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { once } from "node:events";
import { closeSync, constants, openSync, readSync, writeSync } from "node:fs";
import { connect as connectHttp2 } from "node:http2";
import { type AddressInfo, createServer } from "node:net";
import { text } from "node:stream/consumers";
import { type TestContext, test } from "node:test";
import { TempDir } from "../e2e/harness/temp.ts";
import { until } from "../shared/basics/testing/wait.ts";
import { encodeDestination } from "../shared/wire/destination-heads.ts";
import { FEATURES } from "../shared/wire/handshake.ts";
import { encodeAnswer, readOpen } from "../shared/wire/stream-head.ts";
import type { Stream } from "../shared/yamux/stream.ts";
import { type AuditLine, auditFile } from "./audit/testing/trail.ts";
import { CallOfTest } from "./callers/testing/grpc-call.ts";
import { StockAgent } from "./konnectivity-agents/testing/stock-agent.ts";
import { askAs, fleetOf } from "./peers/testing/tenant-fleet.ts";
import { agentOf, callerOf, collect, fetchText, pki, start } from "./testing/server.ts";
import { agentAt, answerOf, callerAt, OpenCaller, Tenants } from "./testing/tenants.ts";
import { ISSUER, Issuer, SUBJECT } from "./tokens/testing/tokens.ts";

function pathIn(t: TestContext): string {
  const dir = new TempDir();
  t.after(() => dir[Symbol.dispose]());
  return `${dir.path}/audit`;
}

/** The lines of one kind, once there are so many. */
async function linesOf(path: string, kind: string, count: number): Promise<AuditLine[]> {
  const lines = () => auditFile(path).filter((line) => line.kind === kind);
  await until(() => lines().length >= count);
  assert.equal(lines().length, count);
  return lines();
}

function identityOf(line: AuditLine | undefined): Record<string, unknown> {
  return (line?.["identity"] ?? {}) as Record<string, unknown>;
}

function only(line: AuditLine | undefined, ...fields: string[]): unknown[] {
  return fields.map((field) => line?.[field]);
}

test("a CONNECT is in the trail before its 200, and at its end with what it has carried", async (t) => {
  const path = pathIn(t);
  await using server = await start({ auditLog: path });
  const agent = await agentOf(server);
  agent.answer = async (stream) => {
    await readOpen(stream, 1_000);
    stream.write(encodeAnswer({ ok: true, address: "10.9.9.9:443" }));
    stream.pipe(stream);
  };
  const caller = await OpenCaller.open(await callerOf(server, pki.caller), "", "kubelet.internal:443");
  const [decision] = await linesOf(path, "connect", 1);
  assert.deepEqual(only(decision, "event", "decision", "rule", "server", "cluster", "target", "address", "agent"), [
    ...["decision", "allowed", "ok", "srv-1", "default", "kubelet.internal:443", "10.9.9.9:443", "a"],
  ]);
  const { by, subject, serial, fingerprint } = identityOf(decision);
  assert.deepEqual([by, subject], ["certificate", "CN=kube-apiserver,O=system:masters"]);
  assert.match(String(serial), /^[0-9A-F]+$/);
  assert.match(String(fingerprint), /^[0-9A-F:]{95}$/);
  assert.match(String(decision?.["source"]), /^127\.0\.0\.1:\d+$/);
  await caller.echo("12345");
  caller.socket.end();
  const [, end] = await linesOf(path, "connect", 2);
  assert.equal(end?.id, decision?.id);
  assert.deepEqual(only(end, "event", "outcome", "endedBy", "bytesUp", "bytesDown", "target", "agent"), [
    ...["end", "ok", "caller", 5, 5, "kubelet.internal:443", "a"],
  ]);
  const logged = server.lines.find(({ msg }) => msg === "connection closed");
  assert.equal(decision?.["connection"], logged?.["id"]);
});

test("CONNECTs over HTTP/2 and dials over gRPC are in the trail as those over HTTP/1 are", async (t) => {
  const path = pathIn(t);
  await using server = await start({ auditLog: path });
  await agentOf(server);
  const socket = await callerOf(server, pki.caller);
  const session = connectHttp2("http://localhost", { createConnection: () => socket });
  t.after(() => session.destroy());
  const stream = session.request({ ":method": "CONNECT", ":authority": "10.0.0.2:10250" });
  await once(stream, "response");
  stream.end("12");
  assert.equal(await text(stream), "12");
  const refused = session.request({ ":method": "CONNECT", ":authority": "nowhere" });
  await text(refused);
  const call = new CallOfTest(await callerOf(server, pki.caller));
  t.after(() => call.cut());
  const connectID = await call.open();
  call.sendData(connectID, "123");
  await until(() => call.text(connectID) === "123");
  call.send({ case: "closeRequest", value: { connectID } });
  const lines = await linesOf(path, "connect", 5);
  for (const [target, bytes] of [
    ["10.0.0.2:10250", 2],
    ["10.0.0.1:10250", 3],
  ]) {
    const [decision, end] = lines.filter((line) => line["target"] === target);
    assert.deepEqual(only(decision, "event", "decision", "rule", "agent"), ["decision", "allowed", "ok", "a"]);
    assert.equal(identityOf(decision)["subject"], "CN=kube-apiserver,O=system:masters");
    assert.match(String(decision?.["source"]), /^127\.0\.0\.1:\d+$/);
    assert.deepEqual(only(end, "event", "id", "outcome"), ["end", decision?.id, "ok"]);
    assert.deepEqual(only(end, "bytesUp", "bytesDown"), [bytes, bytes]);
  }
  const nowhere = lines.find((line) => line["target"] === "nowhere");
  assert.deepEqual(only(nowhere, "decision", "rule"), ["refused", "bad_target"]);
  assert.equal(identityOf(nowhere)["by"], "certificate");
});

test("what is open when a server ends its connections has an end in its trail", async (t) => {
  const path = pathIn(t);
  await using server = await start({ auditLog: path, drainTimeoutMs: 50 });
  await agentOf(server);
  await OpenCaller.open(await callerOf(server, pki.caller));
  await server.close();
  const [decision, end] = await linesOf(path, "connect", 2);
  assert.deepEqual(only(end, "event", "id", "outcome"), ["end", decision?.id, "draining"]);
  const [, tunnel] = await linesOf(path, "agent", 2);
  assert.equal(tunnel?.event, "end");
});

test("an address that is asked for is the one that is dialled, also by an agent that does not say so", async (t) => {
  const path = pathIn(t);
  await using server = await start({ auditLog: path });
  const stock = await (await StockAgent.connect(server)).welcomed();
  const caller = await OpenCaller.open(await callerOf(server, pki.caller));
  const name = await OpenCaller.open(await callerOf(server, pki.caller), "", "kubelet.internal:443");
  const lines = await linesOf(path, "connect", 2);
  assert.deepEqual(
    lines.map((line) => line["address"]),
    ["10.0.0.1:10250", undefined],
  );
  for (const { socket } of [caller, name]) socket.destroy();
  stock.leave();
});

test("a refused CONNECT is one line, which says by which rule, and what a stranger claims to be", async (t) => {
  const path = pathIn(t);
  await using server = await start({ auditLog: path });
  const stranger = await pki.other.issue({ cn: "stranger", usage: "client" });
  assert.match(await answerOf(await callerOf(server, stranger)), /^HTTP\/1\.1 407 /);
  assert.match(await answerOf(await callerOf(server)), /^HTTP\/1\.1 407 /);
  assert.match(
    await answerOf(await callerOf(server, pki.caller), "CONNECT nowhere HTTP/1.1\r\n\r\n"),
    /^HTTP\/1\.1 400 /,
  );
  assert.match(await answerOf(await callerOf(server, pki.caller)), /^HTTP\/1\.1 503 no agent/);
  const lines = await linesOf(path, "connect", 4);
  assert.deepEqual(
    lines.map((line) => only(line, "event", "decision", "rule", "target", "address")),
    [
      ["decision", "refused", "unauthenticated", "", undefined],
      ["decision", "refused", "unauthenticated", "", undefined],
      ["decision", "refused", "bad_target", "nowhere", undefined],
      ["decision", "refused", "no_agent", "10.0.0.1:10250", undefined],
    ],
  );
  assert.match(JSON.stringify(lines[0]?.["identity"]), /^\{"by":"nothing","claimed":"subject CN=stranger, issuer CN=/);
  assert.deepEqual(lines[1]?.["identity"], { by: "nothing" });
  assert.equal(identityOf(lines[2])["by"], "certificate");
  assert.match(String(lines[3]?.["reason"]), /^no agent of cluster "default"/);
});

test("tokens are named by their subject, and no part of one is in the trail", async (t) => {
  const path = pathIn(t);
  await using tenants = await Tenants.create(["blue"]);
  const issuer = await Issuer.create();
  const { writeFile } = await import("node:fs/promises");
  await writeFile(`${tenants.folder}/blue.jwks`, JSON.stringify(await issuer.keySet()));
  const sub = "system:serviceaccount:monitoring:prometheus";
  const jwt = { issuer: ISSUER, audience: "culvert", jwks: "blue.jwks" };
  const blue = tenants.get("blue");
  await blue.write({
    agents: { token: { jwt: { ...jwt, subjects: [SUBJECT] } } },
    callers: { token: { jwt: { ...jwt, subjects: ["system:serviceaccount:monitoring:*"] } } },
  });
  const server = await tenants.start({ auditLog: path });
  const token = await issuer.token({ sub });
  await agentAt(server, "", { at: blue, token: await issuer.token() });
  const header = `Proxy-Authorization: Bearer ${token}\r\n`;
  const caller = await OpenCaller.open(await callerAt(server, blue.sni, undefined), header);
  const forged = `${token.slice(0, -6)}AAAAAA`;
  const ask = `CONNECT 10.0.0.1:1 HTTP/1.1\r\nHost: x\r\nProxy-Authorization: Bearer ${forged}\r\n\r\n`;
  assert.match(await answerOf(await callerAt(server, blue.sni, undefined), ask), /^HTTP\/1\.1 407 /);
  const [allowed, refused] = await linesOf(path, "connect", 2);
  assert.deepEqual(allowed?.["identity"], { by: "token", subject: sub });
  assert.deepEqual(refused?.["identity"], { by: "nothing" });
  const [agent] = await linesOf(path, "agent", 1);
  assert.deepEqual(agent?.["identity"], { by: "token", subject: SUBJECT });
  const parts = token.split(".");
  for (const part of parts) assert.ok(!JSON.stringify(auditFile(path)).includes(part));
  caller.socket.destroy();
});

test("an agent's tunnel is a decision and an end, ours and a stock one; a refused one says why", async (t) => {
  const path = pathIn(t);
  await using server = await start({ auditLog: path });
  const agent = await agentOf(server);
  const stock = await (await StockAgent.connect(server)).welcomed();
  await linesOf(path, "agent", 2);
  const client = await pki.ca.issue({ cn: "konnectivity-client", usage: "client" });
  await assert.rejects(agentOf(server, { agentId: "b", by: client }), /403/);
  await assert.rejects(agentOf(server, { instance: "1" }), /already_connected/);
  agent.session.destroy();
  stock.leave();
  const lines = await linesOf(path, "agent", 6);
  const decisions = lines.filter(({ event }) => event === "decision");
  assert.deepEqual(
    decisions.map((line) => only(line, "decision", "rule", "agent")),
    [
      ["allowed", "ok", "a"],
      ["allowed", "ok", "stock"],
      ["refused", "forbidden", undefined],
      ["refused", "already_connected", undefined],
    ],
  );
  const subjects = decisions.map((line) => identityOf(line)["subject"]);
  assert.deepEqual(subjects, ["CN=konnectivity-agent", "CN=konnectivity-agent", undefined, "CN=konnectivity-agent"]);
  const ended = lines.filter(({ event }) => event === "end").map(({ id }) => id);
  assert.deepEqual(new Set(ended), new Set(decisions.slice(0, 2).map(({ id }) => id)));
});

test("a stream that an agent opens is in the trail with the destination and the address that was dialled", async (t) => {
  const path = pathIn(t);
  const target = createServer((socket) => socket.on("error", () => {}).end("hello"));
  target.listen(0, "127.0.0.2");
  await once(target, "listening");
  t.after(() => target.close());
  const { port } = target.address() as AddressInfo;
  await using server = await start({ auditLog: path, allowedDestination: [`127.0.0.2:${port}`] });
  await using agent = await agentOf(server, { features: [...FEATURES] });
  for (const asked of [port, 1]) {
    const destination = { target: { host: "127.0.0.2", port: asked }, timeoutMs: 5_000, id: `n/${asked}` };
    const stream = agent.session.open(encodeDestination(destination));
    stream.on("error", () => {}).resume();
    await once(stream, "end");
    stream.end();
  }
  const lines = await linesOf(path, "destination", 3);
  const of = (connection: string) => lines.find((line) => line["connection"] === connection);
  const where = `127.0.0.2:${port}`;
  const allowed = of(`n/${port}`);
  assert.deepEqual(only(allowed, "decision", "target", "address", "agent"), ["allowed", where, where, "a"]);
  assert.deepEqual(only(of("n/1"), "decision", "rule", "target"), ["refused", "forbidden", "127.0.0.2:1"]);
  assert.equal(identityOf(allowed)["subject"], "CN=konnectivity-agent");
  const end = lines.find(({ event }) => event === "end");
  assert.deepEqual(only(end, "id", "outcome", "bytesDown"), [allowed?.id, "ok", 5]);
});

test("a CONNECT over two servers is in the trails of both, with one name of the connection", async (t) => {
  const path = pathIn(t);
  const farPath = pathIn(t);
  const farOptions = { auditLog: farPath };
  await using world = await fleetOf(["blue"], { options: { auditLog: path }, farOptions });
  const { near, tenants } = world;
  const open = await askAs(near, tenants.get("blue"));
  assert.match(open.status, /^HTTP\/1\.1 200 /);
  const [line] = await linesOf(path, "connect", 1);
  assert.deepEqual(only(line, "server", "peer", "agent"), ["srv-1", "srv-2", "a"]);
  assert.match(String(line?.["connection"]), /^srv-1\//);
  open.socket.destroy();
  const [hop, end] = await linesOf(farPath, "hop", 2);
  const same = ["connection", "cluster", "target", "agent"];
  assert.deepEqual(only(hop, ...same), only(line, ...same));
  assert.deepEqual(only(hop, "server", "peer", "decision"), ["srv-2", "srv-1", "allowed"]);
  assert.equal(identityOf(hop)["by"], "certificate");
  assert.deepEqual(only(end, "event", "id"), ["end", hop?.id]);
});

test("a trail that is required and cannot be written refuses before anything is dialled, and the server is not ready", async (t) => {
  const path = pathIn(t);
  execFileSync("mkfifo", [path]);
  await using server = await start({ auditLog: path, auditRequired: true });
  const agent = await agentOf(server);
  let asked = 0;
  const { answer } = agent;
  agent.answer = (stream) => {
    asked++;
    return answer(stream);
  };
  const first = await OpenCaller.open(await callerOf(server, pki.caller));
  const ready = async () => (await fetchText(server.addresses.admin?.port, "/readyz?verbose")).text;
  assert.match(await ready(), /^\[\+\]audit/m);
  // Refusals fill the FIFO, which nobody reads.
  for (let filled = false; !filled; filled = (await ready()).includes("[-]audit")) {
    await answerOf(await callerOf(server, pki.caller), `CONNECT ${"x".repeat(250)} HTTP/1.1\r\n\r\n`);
  }
  const before = asked;
  const text = await answerOf(await callerOf(server, pki.caller));
  assert.match(text, /^HTTP\/1\.1 503 the audit trail of this server cannot be written/);
  assert.equal(asked, before);
  assert.match(await ready(), /^\[-\]audit failed: the audit trail: nobody reads it/m);
  const { problems } = JSON.parse((await fetchText(server.addresses.admin?.port, "/status")).text);
  assert.match(problems.join(), /^audit: the audit trail: nobody reads it/);
  await first.echo("what is open goes on");
  first.socket.destroy();
});

test("a CONNECT that must be in the trail waits for a slow reader of it, and gives its stream up where none reads", async (t) => {
  const path = pathIn(t);
  execFileSync("mkfifo", [path]);
  const fifo = openSync(path, constants.O_RDWR | constants.O_NONBLOCK);
  t.after(() => closeSync(fifo));
  await using server = await start({ auditLog: path, auditRequired: true });
  const agent = await agentOf(server);
  const streams: Stream[] = [];
  const { answer } = agent;
  agent.answer = (stream) => {
    streams.push(stream);
    return answer(stream);
  };
  const fill = (): void => {
    const some = Buffer.alloc(4_096, "x");
    assert.throws(() => {
      for (;;) writeSync(fifo, some);
    });
  };
  fill();
  const waits = OpenCaller.open(await callerOf(server, pki.caller));
  await until(() => streams.length === 1);
  readSync(fifo, Buffer.alloc(65_536));
  const { socket } = await waits;
  fill();
  const text = await answerOf(await callerOf(server, pki.caller));
  assert.match(text, /^HTTP\/1\.1 503 the audit trail of this server cannot be written/);
  await until(() => streams.length === 2 && streams[1]?.destroyed === true);
  socket.destroy();
});

test("where the trail is required and the disk is full, an agent gets no destination, and another server no stream", async () => {
  const full = { auditLog: "/dev/full", auditRequired: true };
  await using server = await start({ ...full, allowedDestination: ["127.0.0.2:1"] });
  await using agent = await agentOf(server, { features: [...FEATURES] });
  const destination = { target: { host: "127.0.0.2", port: 1 }, timeoutMs: 5_000, id: "n/1" };
  const stream = agent.session.open(encodeDestination(destination));
  const reads = collect(stream.on("error", () => {}));
  await once(stream, "end");
  stream.end();
  assert.match(reads.join(""), /"unaudited"/);
  await using world = await fleetOf(["blue"], { farOptions: full });
  const { near, tenants } = world;
  assert.match((await askAs(near, tenants.get("blue"))).status, /^HTTP\/1\.1 503 the audit trail of this server/);
});

test("without --audit-log there is no trail, and readyz says nothing of one", async () => {
  await using server = await start();
  const { text } = await fetchText(server.addresses.admin?.port, "/readyz?verbose");
  assert.doesNotMatch(text, /audit/);
});
