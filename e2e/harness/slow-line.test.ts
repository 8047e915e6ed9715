import assert from "node:assert/strict";
import { once } from "node:events";
import { connect, type Socket } from "node:net";
import { test } from "node:test";
import { PayloadCheck } from "./payload.ts";
import { peerEnd } from "./peer-end.ts";
import { type SlowLine, startSlowLine } from "./slow-line.ts";
import { halfCloseTarget, resettingTarget, sinkTarget, sourceTarget } from "./targets/plain.ts";
import { waitFor, within } from "./wait.ts";

const KIB = 1024;

function dial(line: SlowLine): Socket {
  const socket = connect({ host: line.host, port: line.port, allowHalfOpen: true, noDelay: true });
  socket.on("error", () => {});
  return socket;
}

test("every byte comes, in order, and so do ends and resets", async () => {
  await using target = await halfCloseTarget({ bytes: 300_000, seed: 5 });
  await using line = await startSlowLine(target, { bytesPerSecond: 10_000_000, queueBytes: 256 * KIB, rttMs: 2 });
  const socket = dial(line);
  const check = new PayloadCheck(5);
  socket.on("data", (chunk: Buffer) => check.take(chunk));
  socket.end("done");
  await once(socket, "end");
  check.expect(300_000, "the download");
  assert.deepEqual(line.bytes, { forward: 4, backward: 300_000 });

  await using resetting = await resettingTarget(3);
  await using other = await startSlowLine(resetting, { bytesPerSecond: 1_000_000, queueBytes: 256 * KIB, rttMs: 2 });
  const reset = dial(other).resume();
  reset.write("abc");
  assert.equal(await within(peerEnd(reset), 5_000, "a reset"), "ECONNRESET");
});

test("all connections together have the rate of the one wire, each way", async () => {
  await using target = await sourceTarget();
  await using line = await startSlowLine(target, { bytesPerSecond: 1_000_000, queueBytes: 256 * KIB, rttMs: 0 });
  const sockets = [dial(line), dial(line), dial(line)];
  const got = [0, 0, 0];
  for (const [i, socket] of sockets.entries())
    socket.on("data", (chunk: Buffer) => (got[i] = (got[i] ?? 0) + chunk.length));
  const sum = () => got.reduce((a, b) => a + b, 0);
  await waitFor(() => sum() > 0);
  const [before, since] = [sum(), performance.now()];
  await waitFor(() => sum() - before >= 500_000);
  const rate = (sum() - before) / ((performance.now() - since) / 1000);
  // One tick's worth more than the rate can fall into the time that was measured; a busy machine makes it less.
  assert.ok(rate < 1_100_000 && rate > 50_000, `${rate} B/s`);
  assert.ok(
    got.every((bytes) => bytes > 0),
    `each had a share: ${got}`,
  );
  for (const socket of sockets) socket.destroy();
});

test("a full queue delays everybody by its length, is bounded, and stalls whoever fills it", async () => {
  await using target = await sinkTarget();
  await using line = await startSlowLine(target, { bytesPerSecond: 1_250_000, queueBytes: 256 * KIB, rttMs: 0 });
  const bulk = dial(line);
  const block = Buffer.alloc(16 * KIB * KIB);
  bulk.write(block);
  let worst = 0;
  const watch = setInterval(() => {
    worst = Math.max(worst, line.queued("forward"));
  }, 1);
  await waitFor(() => line.queued("forward") > 190 * KIB);
  const other = dial(line);
  await once(other, "connect");
  other.write("behind the bulk");
  const before = target.connections[0]?.bytes ?? 0;
  await waitFor(() => target.connections[1]?.bytes === 15);
  const ahead = (target.connections[0]?.bytes ?? 0) - before;
  clearInterval(watch);
  assert.ok(ahead >= 120 * KIB, `${ahead} bytes of the other's went first`);
  assert.ok(worst <= 256 * KIB, `${worst} bytes in the queue`);
  assert.ok(bulk.writableLength > 0, "the rest waits in the sender");
  bulk.destroy();
  other.destroy();
});
