import assert from "node:assert/strict";
import { test } from "node:test";
import type { TLSSocket } from "node:tls";
import type { Stream } from "../shared/yamux/stream.ts";
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
  until,
  within,
} from "./testing.ts";

const MIB = 1024 * 1024;

type Server = Awaited<ReturnType<typeof start>>;

/** What a CONNECT is answered. */
async function ask(server: Server): Promise<string> {
  const caller = await callerOf(server, pki.caller);
  const reads = collect(caller);
  caller.write(CONNECT);
  await until(() => reads.join("").includes("\r\n\r\n"));
  caller.destroy();
  return reads.join("");
}

/** A caller that is connected, and reads nothing until it is told to. */
async function slowReader(server: Server): Promise<TLSSocket> {
  const caller = await callerOf(server, pki.caller);
  caller.write(CONNECT);
  const answer = await within(new Promise((resolve) => caller.once("data", resolve)), "the 200");
  assert.equal(String(answer), ESTABLISHED);
  return caller.pause();
}

async function metric(server: Server, name: string): Promise<number> {
  const text = await server.metrics.registry.metrics();
  return Number(new RegExp(`^${name} (\\d+)$`, "m").exec(text)?.[1]);
}

test("what a slow reader of one tunnel leaves unread refuses CONNECTs on another, until it has read", async () => {
  await using server = await start({ memoryLimit: MIB, initialWindow: 4 * MIB });
  const { streams } = await agentOf(server, { agentId: "a" });
  const slow = await slowReader(server);
  await agentOf(server, { agentId: "b" });

  // More than its window, for some of it lies in the sockets on its way to the caller.
  const bytes = 12 * MIB;
  (streams[0] as Stream).write(Buffer.alloc(bytes));
  await until(async () => (await metric(server, "culvert_server_memory_held_bytes")) > MIB);
  assert.equal(await metric(server, "culvert_server_memory_limit_bytes"), MIB);
  const refusal = await ask(server);
  assert.match(refusal, /^HTTP\/1\.1 503 this server holds as much as --memory-limit allows: try again\r\n/);
  assert.equal(server.lines.findLast(({ outcome }) => outcome !== undefined)?.["outcome"], "overloaded");
  assert.ok((await metric(server, "culvert_server_streams_refused_for_memory_total")) > 0);
  const { memory } = JSON.parse((await fetchText(server.addresses.admin?.port, "/status")).text);
  assert.deepEqual([memory.limitBytes, memory.refusing], [MIB, true]);

  let read = 0;
  slow.on("data", (chunk: Buffer) => {
    read += chunk.length;
  });
  slow.resume();
  await until(() => read === bytes);
  await until(async () => (await metric(server, "culvert_server_memory_held_bytes")) === 0);
  assert.equal(await ask(server), ESTABLISHED);
  slow.destroy();
});

test("what a link keeps for an agent that acknowledges nothing counts too, until that link has ended", async () => {
  await using server = await start({ memoryLimit: 128 * 1024, initialWindow: 4 * MIB });
  using path = await freezablePath(server);
  const { session } = await agentOf(server, { agentId: "a", port: path.port });
  const caller = await slowReader(server);
  await agentOf(server, { agentId: "b" });
  path.freeze();
  caller.write(Buffer.alloc(MIB));
  await until(async () => (await metric(server, "culvert_server_memory_held_bytes")) > 128 * 1024);
  assert.equal(await metric(server, "culvert_server_buffered_bytes"), 0);
  assert.match(await ask(server), /^HTTP\/1\.1 503 .*--memory-limit/);

  session.destroy();
  path[Symbol.dispose]();
  await until(async () => (await metric(server, "culvert_server_memory_held_bytes")) === 0);
  assert.equal(await ask(server), ESTABLISHED);
  caller.destroy();
});

test("a tunnel that is lost gives back what it held", async () => {
  await using server = await start({ memoryLimit: MIB, initialWindow: 4 * MIB });
  const { streams, session } = await agentOf(server);
  const slow = await slowReader(server);
  (streams[0] as Stream).write(Buffer.alloc(12 * MIB));
  await until(async () => (await metric(server, "culvert_server_memory_held_bytes")) > MIB);
  session.destroy();
  await until(async () => (await metric(server, "culvert_server_memory_held_bytes")) === 0);
  await agentOf(server, { agentId: "b" });
  assert.equal(await ask(server), ESTABLISHED);
  slow.destroy();
});
