import assert from "node:assert/strict";
import { connect, type Socket } from "node:net";
import { join } from "node:path";
import { test } from "node:test";
import type { TLSSocket } from "node:tls";
import { until } from "../shared/basics/testing/wait.ts";
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
  type TestServer,
  within,
} from "./testing/server.ts";

const MIB = 1024 * 1024;

/** The answer to a CONNECT. */
async function ask(server: TestServer): Promise<string> {
  const caller = await callerOf(server, pki.caller);
  const reads = collect(caller);
  caller.write(CONNECT);
  await until(() => reads.join("").includes("\r\n\r\n"));
  caller.destroy();
  return reads.join("");
}

/** A caller that is connected, and reads nothing until it is told to. */
async function slowReader(server: TestServer): Promise<TLSSocket> {
  const caller = await callerOf(server, pki.caller);
  caller.write(CONNECT);
  const answer = await within(new Promise((resolve) => caller.once("data", resolve)), "the 200");
  assert.equal(String(answer), ESTABLISHED);
  return caller.pause();
}

async function metric(server: TestServer, name: string): Promise<number> {
  const text = await server.metrics.registry.metrics();
  return Number(new RegExp(`^${name}(?:\\{cluster="default"\\})? (\\d+)$`, "m").exec(text)?.[1]);
}

const HELD = "culvert_server_memory_held_bytes";

test("a caller that has stopped reading is ended where memory is short, and a CONNECT on another tunnel answered", async () => {
  await using server = await start({ memoryLimit: 4 * MIB, initialWindow: 4 * MIB });
  const { streams } = await agentOf(server, { agentId: "a" });
  const slow = await slowReader(server);
  const ended = new Promise((resolve) => slow.once("end", resolve).once("error", resolve));
  await agentOf(server, { agentId: "b" });

  // More than its window, for some of it lies in the sockets on its way to the caller.
  (streams[0] as Stream).on("error", () => {}).write(Buffer.alloc(24 * MIB));
  await until(async () => (await metric(server, "culvert_server_connections_ended_for_memory_total")) === 1);
  assert.equal(await metric(server, "culvert_server_memory_limit_bytes"), 4 * MIB);
  assert.equal(await ask(server), ESTABLISHED);
  const line = server.lines.find(({ outcome }) => outcome === "stalled");
  assert.deepEqual([line?.level, line?.["endedBy"]], ["warn", "server"]);
  assert.match(
    String(line?.["reason"]),
    /^memory is short, and this connection held some for a reader that has stopped/,
  );
  assert.ok((await metric(server, HELD)) < 4 * MIB);
  const { memory } = JSON.parse((await fetchText(server.addresses.admin?.port, "/status")).text);
  assert.deepEqual([memory.limitBytes, memory.refusing, memory.endedConnections], [4 * MIB, false, 1]);
  slow.resume();
  await within(ended, "the end of the slow reader");
  slow.destroy();
});

/** Reads `rate` bytes a second; returns how many it has read, and whether it was cut. */
function readAt(rate: number, caller: TLSSocket): { bytes: number; readonly stop: () => void } {
  const reading = { bytes: 0, stop: () => clearInterval(timer) };
  const begun = performance.now();
  const timer = setInterval(() => {
    while (reading.bytes < ((performance.now() - begun) / 1_000) * rate) {
      const chunk: Buffer | null = caller.read();
      if (chunk === null) return;
      reading.bytes += chunk.length;
    }
  }, 20);
  return reading;
}

function sendWithoutEnd(stream: Stream): void {
  const chunk = Buffer.alloc(64 * 1024);
  const next = (error?: Error | null) => void (error == null && stream.write(chunk, next));
  stream.on("error", () => {});
  next();
}

test("a slow reader over TLS outlives others that have stopped, although its sockets hold most and take more only now and then", async () => {
  const udsName = join(pki.folder, "callers.sock");
  await using server = await start({ memoryLimit: 16 * MIB, udsName });
  const { streams } = await agentOf(server);
  const slow = await slowReader(server);
  const reading = readAt(2 * MIB, slow);
  const slowStream = streams[0] as Stream;
  sendWithoutEnd(slowStream);
  const stopped: Socket[] = [];
  try {
    // The bytes that the kernel takes at once have gone, and a step that the socket has waited for.
    await until(() => reading.bytes > 8 * MIB);
    let sending = 1;
    while (stopped.length < 60 && !slowStream.destroyed) {
      const caller = connect({ path: udsName }).on("error", () => {});
      stopped.push(caller);
      const answer = new Promise((resolve) => caller.once("data", resolve));
      caller.write(CONNECT);
      await within(answer, "an answer");
      caller.pause();
      while (sending < streams.length) sendWithoutEnd(streams[sending++] as Stream);
    }
    const ended = () => metric(server, "culvert_server_connections_ended_for_memory_total");
    await until(async () => (await ended()) > 5 || slowStream.destroyed);
    const before = reading.bytes;
    await until(() => reading.bytes > before + 3 * MIB || slowStream.destroyed);
    assert.equal(slowStream.destroyed, false, "the slow reader goes on");
  } finally {
    reading.stop();
    for (const caller of [slow, ...stopped]) caller.destroy();
  }
});

test("what a link keeps for an agent that acknowledges nothing counts, until that link has ended", async () => {
  await using server = await start({ memoryLimit: 16 * MIB, initialWindow: 4 * MIB });
  using path = await freezablePath(server);
  const { session } = await agentOf(server, { agentId: "a", port: path.port });
  const caller = await slowReader(server);
  path.freeze();
  caller.write(Buffer.alloc(MIB));
  await until(async () => (await metric(server, HELD)) > 64 * 1024);
  assert.equal(await metric(server, "culvert_server_buffered_bytes"), 0);

  session.destroy();
  path[Symbol.dispose]();
  await until(async () => (await metric(server, HELD)) === 0);
  await agentOf(server, { agentId: "b" });
  assert.equal(await ask(server), ESTABLISHED);
  caller.destroy();
});

test("a tunnel that is lost gives back what it held", async () => {
  await using server = await start({ memoryLimit: 64 * MIB, initialWindow: 4 * MIB });
  const { streams, session } = await agentOf(server);
  const slow = await slowReader(server);
  (streams[0] as Stream).on("error", () => {}).write(Buffer.alloc(12 * MIB));
  await until(async () => (await metric(server, HELD)) > MIB);
  session.destroy();
  await until(async () => (await metric(server, HELD)) === 0);
  await agentOf(server, { agentId: "b" });
  assert.equal(await ask(server), ESTABLISHED);
  slow.destroy();
});
