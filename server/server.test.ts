import assert from "node:assert/strict";
import { once } from "node:events";
import { stat } from "node:fs/promises";
import { connect as dialPlain } from "node:net";
import { join } from "node:path";
import { test } from "node:test";
import { resetSocket } from "../shared/relay/reset.ts";
import { agentOf, CONNECT, callerOf, collect, ESTABLISHED, fetchText, pki, start, until } from "./testing/server.ts";

test("a CONNECT goes through the unix socket and through TLS at the same time", async () => {
  const udsName = join(pki.folder, "s.sock");
  await using server = await start({ udsName });
  await agentOf(server);
  const plain = dialPlain(udsName);
  const secure = await callerOf(server, pki.caller);
  for (const socket of [plain, secure]) {
    const reads = collect(socket);
    socket.write(CONNECT);
    await until(() => reads.length > 0);
    assert.equal(reads.join(""), ESTABLISHED);
    socket.write("hello");
    await until(() => reads.join("") === `${ESTABLISHED}hello`);
    socket.end();
    await once(socket, "close");
  }
  await server.close();
  await assert.rejects(stat(udsName), { code: "ENOENT" });
});

test("over TLS the 200 is in a read of its own, without a wait", async () => {
  await using server = await start({ establishedGapMs: 60_000 });
  const agent = await agentOf(server);
  for (let round = 0; round < 10; round++) {
    const socket = await callerOf(server, pki.caller);
    const reads = collect(socket);
    socket.write(`${CONNECT}early`); // the echo target then speaks as early as can be
    await until(() => reads.join("").endsWith("early"));
    assert.deepEqual(reads, [ESTABLISHED, "early"]);
    socket.destroy();
  }
  assert.equal(agent.streams.length, 10);
});

test("a restarted agent takes over, and the streams of its old process live on", async () => {
  await using server = await start();
  const old = await agentOf(server);
  const socket = await callerOf(server, pki.caller);
  const reads = collect(socket);
  socket.write(CONNECT);
  await until(() => reads.length === 1);
  const young = await agentOf(server, { instance: "2" });
  await until(() => old.session.draining);
  socket.write("still here");
  await until(() => reads.join("").endsWith("still here"));
  const second = await callerOf(server, pki.caller);
  second.write(CONNECT);
  await until(() => young.streams.length === 1);
  second.destroy();
  socket.end();
  await old.closed;
});

test("a caller that resets its TLS connection resets the stream; an agent that is lost resets the caller", async () => {
  await using server = await start();
  const agent = await agentOf(server);
  const leaving = await callerOf(server, pki.caller);
  const reads = collect(leaving);
  leaving.write(CONNECT);
  await until(() => reads.length === 1);
  resetSocket(leaving);
  await until(() => agent.streams[0]?.destroyed === true);

  const staying = await callerOf(server, pki.caller);
  let ended = false;
  staying.on("end", () => {
    ended = true;
  });
  const more = collect(staying);
  staying.write(CONNECT);
  await until(() => more.length === 1);
  agent.link.destroy();
  const [error] = await once(staying, "error");
  assert.equal(error.code, "ECONNRESET");
  assert.equal(ended, false, "no end in order");
  await until(() => server.lines.some((line) => line["outcome"] === "agent_lost"));
});

test("readiness and status tell what an operator asks", async () => {
  await using server = await start({ readyNeedsAgent: true });
  const health = server.addresses.health?.port;
  const before = await fetchText(health, "/readyz?verbose");
  assert.equal(before.status, 503);
  assert.match(before.text, /\[-\]agents failed: 0 connected/);
  assert.match(before.text, /\[\+\]configuration ok: 1 warning, named at \/readyz\?verbose of the admin port$/m);
  assert.match(
    (await fetchText(server.addresses.admin?.port, "/readyz")).text,
    /\[\+\]configuration ok: warning: callers and agents come from the same CA: give --caller-identities and --agent-identities/,
  );
  await agentOf(server);
  await until(() => [...server.tunnels.tunnels()].length === 1);
  assert.equal((await fetchText(health, "/readyz")).status, 200);
  const status = JSON.parse((await fetchText(server.addresses.admin?.port, "/status")).text);
  assert.equal(status.serverId, "srv-1");
  assert.equal(status.clusters[0].tunnels[0].agent, "a");
  assert.equal(status.clusters[0].tunnels[0].identity, "CN=konnectivity-agent");
  const warnings = server.lines.filter(({ level, msg }) => level === "warn" && /same CA/.test(msg));
  assert.equal(warnings.length, 1, "the shared CA is said once");
});

/** Of a net for documentation (RFC 5737). */
const NOBODYS = "192.0.2.1";

test("what cannot start says which option is wrong, and leaves nothing open", async () => {
  await assert.rejects(
    start({ serverCert: join(pki.folder, "none.pem") }),
    /listener for callers.*none\.pem.*no such file/,
  );
  await assert.rejects(start({ agentIdentities: ["nonsense"] }), /--agent-identities: identity pattern "nonsense"/);
  await using first = await start();
  const taken = first.addresses.callers?.port ?? 0;
  await assert.rejects(start({ serverPort: taken }), /in use by another process.*--server-port/);
  for (const [flag, host] of [
    ["--server-bind-address", { serverBindAddress: NOBODYS }],
    ["--agent-bind-address", { agentBindAddress: NOBODYS }],
    [
      "--agent-insecure-bind-address",
      { agentInsecureBindAddress: NOBODYS, agentInsecureTrustedCidrs: ["127.0.0.0/8"], innerTls: "always" },
    ],
    ["--health-bind-address", { healthBindAddress: NOBODYS }],
    ["--admin-bind-address", { adminBindAddress: NOBODYS }],
  ] as const) {
    await assert.rejects(start(host), { message: new RegExp(`does not have the address.*\\(${flag}\\)`) });
  }
});
