import assert from "node:assert/strict";
import { connect as dialPlain } from "node:net";
import { join } from "node:path";
import { test } from "node:test";
import { agentOf, CONNECT, collect, fetchText, freezablePath, pki, start, until, within } from "./testing/server.ts";

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
