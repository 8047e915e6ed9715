import assert from "node:assert/strict";
import { connect as dialPlain } from "node:net";
import { join } from "node:path";
import { test } from "node:test";
import {
  agentOf,
  CONNECT,
  callerOf,
  collect,
  fetchText,
  freezablePath,
  pki,
  start,
  until,
  within,
} from "./testing/server.ts";

test("closing: not ready, agents told, no new CONNECTs, open ones live on, and the end when they have ended", async () => {
  const udsName = join(pki.folder, "d.sock");
  const server = await start({ udsName, drainTimeoutMs: 60_000 });
  const agent = await agentOf(server);
  const socket = dialPlain({ path: udsName, allowHalfOpen: true });
  const reads = collect(socket);
  socket.write(CONNECT);
  await until(() => reads.length === 1);
  const told: string[] = [];
  agent.link.watch({ onControl: (message) => told.push(message.type) });

  const closing = server.close();
  assert.match((await fetchText(server.addresses.health?.port, "/readyz")).text, /\[-\]not-draining failed/);
  await assert.rejects(callerOf(server, pki.caller));
  await until(() => agent.session.draining && told.length === 1);
  assert.deepEqual(told, ["drain"]);
  socket.write("still here");
  await until(() => reads.join("").endsWith("still here"));
  socket.end();
  await within(closing, "the end of a server whose last connection has ended");
  assert.equal(await agent.closed, undefined, "the session was closed in order");
  await assert.rejects(fetchText(server.addresses.health?.port, "/readyz"));
});

test("closing does not wait beyond --drain-timeout", async () => {
  const server = await start({ drainTimeoutMs: 100 });
  await agentOf(server);
  const socket = await callerOf(server, pki.caller);
  const reads = collect(socket);
  socket.write(CONNECT);
  await until(() => reads.length === 1);
  await within(server.close(), "the end of a server whose drain has timed out");
  await until(() => socket.destroyed);
});

test("an idle server with an agent and a silent caller closes without waiting for anything", async () => {
  const server = await start({ udsName: join(pki.folder, "i.sock"), drainTimeoutMs: 60_000 });
  await agentOf(server);
  await callerOf(server, pki.caller); // has asked for nothing
  await within(server.close(), "the end of an idle server");
  await server.close();
});

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
