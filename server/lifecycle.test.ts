import assert from "node:assert/strict";
import { once } from "node:events";
import { connect as dialPlain } from "node:net";
import { join } from "node:path";
import { test } from "node:test";
import { connect as dialTls } from "node:tls";
import { until } from "../shared/basics/testing/wait.ts";
import {
  agentOf,
  CONNECT,
  callerOf,
  collect,
  ESTABLISHED,
  fetchText,
  freezablePath,
  pki,
  start,
  within,
} from "./testing/server.ts";

test("an agent that is frozen does not hold a server beyond --drain-timeout", async () => {
  const server = await start({ drainTimeoutMs: 100 });
  using path = await freezablePath(server);
  await agentOf(server, { port: path.port });
  path.freeze();
  await within(server.close(), "the end of a server whose agent says nothing");
});

test("destroy ends everything at once", async () => {
  const server = await start();
  const agent = await agentOf(server);
  server.destroy(new Error("enough"));
  await agent.closed;
  await server.close();
});

test("destroy ends what a close still waits for", async () => {
  const udsName = join(pki.folder, "w.sock");
  // The gap is a wait that does not notice that the tunnel has gone.
  const server = await start({ udsName, drainTimeoutMs: 60_000, establishedGapMs: 60_000 });
  const agent = await agentOf(server);
  const socket = dialPlain(udsName);
  const reads = collect(socket);
  socket.on("error", () => {}).write(CONNECT);
  await until(() => reads.length === 1);
  const closing = server.close();
  await until(() => agent.session.draining);
  server.destroy(new Error("a second signal"));
  await within(closing, "the end of a close that waited");
  await agent.closed;
  await until(() => socket.destroyed);
  await assert.rejects(fetchText(server.addresses.health?.port, "/readyz"));
});

test("callers that have connected before a shutdown are still served, and later ones are refused", async () => {
  const server = await start();
  await agentOf(server);
  const port = server.addresses.callers?.port ?? 0;
  const secured = await callerOf(server, pki.caller);
  // The kernel holds this one: no turn of the event loop has accepted it.
  const raw = dialPlain({ port, host: "127.0.0.1" });
  await once(raw, "connect");
  const closing = server.close();
  const connected = dialTls({ socket: raw, ca: pki.ca.cert, ...pki.caller });
  const answers = [secured, connected].map((socket) => {
    socket.on("error", () => {}).write(CONNECT);
    return collect(socket);
  });
  await until(() => answers.every((reads) => reads.join("") === ESTABLISHED));
  await assert.rejects(callerOf(server, pki.caller), { code: "ECONNREFUSED" });
  secured.end();
  connected.end();
  await within(closing, "the end of a server whose callers have ended");
});

test("until --shutdown-delay is over a server that is not ready takes callers", async () => {
  const server = await start({ shutdownDelayMs: 600_000 });
  await agentOf(server);
  const closing = server.close();
  assert.equal((await fetchText(server.addresses.health?.port, "/readyz")).status, 503);
  const caller = await callerOf(server, pki.caller);
  const reads = collect(caller);
  caller.write(CONNECT);
  await until(() => reads.join("") === ESTABLISHED);
  server.destroy(new Error("the delay is longer than the test"));
  await within(closing, "the end of a close whose delay is not over");
});
