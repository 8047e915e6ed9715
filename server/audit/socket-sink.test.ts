import assert from "node:assert/strict";
import { once } from "node:events";
import { rmSync } from "node:fs";
import { createServer, type Server, type Socket } from "node:net";
import { type TestContext, test } from "node:test";
import { TempDir } from "../../e2e/harness/temp.ts";
import { until } from "../../shared/basics/testing/wait.ts";
import { MAX_WAITING, NOT_READ } from "./audit-sink.ts";
import { SocketSink } from "./socket-sink.ts";

function sinkOf(t: TestContext) {
  const dir = new TempDir();
  const path = `${dir.path}/collector`;
  const counts = { lost: 0, idle: 0 };
  const sink = new SocketSink(path, { onLost: () => counts.lost++, onIdle: () => counts.idle++ });
  t.after(() => {
    sink.close();
    dir[Symbol.dispose]();
  });
  return { sink, counts, path };
}

/** A collector at a socket; with `reads: false` it reads nothing until it is asked to. */
async function collector(t: TestContext, path: string, { reads = true } = {}) {
  const sockets: Socket[] = [];
  const parts: string[] = [];
  const read = (socket: Socket): void => void socket.on("data", (chunk) => parts.push(String(chunk)));
  const server: Server = createServer((socket) => {
    sockets.push(socket.on("error", () => {}));
    if (reads) read(socket);
  });
  server.listen(path);
  await once(server, "listening");
  const end = (): void => {
    server.close();
    for (const socket of sockets) socket.destroy();
    rmSync(path, { force: true });
  };
  t.after(end);
  return { text: () => parts.join(""), sockets, end, read: () => sockets.forEach(read) };
}

test("lines wait for a collector that comes later, and are sent when it is there", async (t) => {
  const { sink, counts, path } = sinkOf(t);
  sink.write("one\n");
  await until(() => sink.fault === "it cannot be written (ENOENT)");
  assert.equal(sink.isWaiting, true);
  const { text } = await collector(t, path);
  sink.write("two\n");
  await until(() => text() === "one\ntwo\n");
  assert.deepEqual([sink.isWaiting, sink.fault], [false, undefined]);
  assert.ok(counts.idle > 0);
});

test("a collector that has gone is a fault although nothing waits; its successor gets what comes meanwhile", async (t) => {
  const { sink, path } = sinkOf(t);
  const first = await collector(t, path);
  await until(() => sink.fault === undefined);
  first.end();
  await until(() => sink.fault !== undefined);
  sink.write("one\n");
  const second = await collector(t, path);
  await until(() => second.text() === "one\n");
});

test("a collector that reads nothing holds up nothing: memory is bounded, the rest is counted, and all else comes when it reads", async (t) => {
  const { sink, counts, path } = sinkOf(t);
  const { text, read, sockets } = await collector(t, path, { reads: false });
  await until(() => sockets.length === 1);
  const line = (at: number): string => `${String(at).padStart(8, "0")} ${"x".repeat(400)}\n`;
  let sent = 0;
  // Each turn of the loop lets the kernel take a part, until it has no room.
  for (let quiet = 0; quiet < 100; quiet++) {
    const { lost } = counts;
    for (let some = 0; some < 100; some++) sink.write(line(sent++));
    await new Promise((resolve) => setImmediate(resolve));
    if (counts.lost === lost) quiet = 0;
  }
  assert.ok(sent * 400 > MAX_WAITING);
  await until(() => sink.fault === NOT_READ);
  const { lost } = counts;
  read();
  await until(() => !sink.isWaiting);
  await until(() => text().length === (sent - lost) * line(0).length);
  const numbers = text()
    .split("\n")
    .slice(0, -1)
    .map((each) => Number(each.slice(0, 8)));
  assert.deepEqual(
    numbers,
    [...numbers].sort((a, b) => a - b),
  );
  assert.equal(sink.fault, undefined);
});

test("what the kernel has not taken when the collector ends is sent again to the next one", async (t) => {
  const { sink, counts, path } = sinkOf(t);
  const first = await collector(t, path, { reads: false });
  await until(() => first.sockets.length === 1);
  const line = `${"x".repeat(999)}\n`;
  for (let at = 0; at < 900; at++) sink.write(`${at} ${line}`);
  await until(() => sink.fault === NOT_READ);
  first.end();
  const { text } = await collector(t, path);
  await until(() => !sink.isWaiting);
  await until(() => text().includes(`\n899 ${line}`));
  assert.ok(/^\d+ x+\n/.test(text()), "it begins with a whole line");
  assert.equal(counts.lost, 0);
});
