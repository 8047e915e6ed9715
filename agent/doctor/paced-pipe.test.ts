import assert from "node:assert/strict";
import { test } from "node:test";
import type { Transport, TransportConsumer } from "../../shared/yamux/transport.ts";
import { PacedPipe } from "./paced-pipe.ts";

const KIB = 1024;

/** A link with room for all, whose peer acknowledges when it is told to. */
function linkOf(unacknowledged = 0) {
  const link = { unacknowledged };
  let consumer: TransportConsumer | undefined;
  const transport: Transport = {
    start: (one) => {
      consumer = one;
    },
    write: (_batch, byteLength) => {
      link.unacknowledged += byteLength;
    },
    ...{ pendingBytes: 0, room: () => 1024 * KIB, wholeRecords: (_at: number, most: number) => most },
    ...{ end: () => {}, destroy: () => consumer?.onClosed(undefined) },
  };
  const pipe = new PacedPipe(transport, link);
  pipe.start({ onBytes: () => {}, onWritable: () => {}, onClosed: () => {} });
  return {
    pipe,
    write: (bytes: number) => pipe.write([Buffer.alloc(bytes)], bytes),
    acknowledge: (bytes: number) => {
      link.unacknowledged -= bytes;
      consumer?.onWritable();
    },
  };
}

test("what the peer has acknowledged has arrived, and lets threefold go", () => {
  const { pipe, write, acknowledge } = linkOf();
  assert.equal(pipe.room(), 16 * KIB);
  write(16 * KIB);
  assert.deepEqual([pipe.room(), pipe.arrived, pipe.underWay], [0, 0, 16 * KIB]);
  acknowledge(10 * KIB);
  assert.deepEqual([pipe.room(), pipe.arrived, pipe.underWay], [30 * KIB, 10 * KIB, 6 * KIB]);
  write(30 * KIB);
  assert.ok(pipe.room() <= 0);
});

test("what arrived longer ago than a second lets no more go now", async (t) => {
  let now = 0;
  t.mock.method(performance, "now", () => now);
  const { pipe, write, acknowledge } = linkOf();
  for (let sent = 0; sent < 10; sent++) {
    write(16 * KIB);
    now += 1_000;
    acknowledge(16 * KIB);
  }
  now += 1_000;
  const room = pipe.room() / KIB;
  assert.ok(Number.isInteger(pipe.room()) && room >= 16 + 8 && room <= 16 + 3 * 16, `${room} KiB`);
});

test("all has arrived when the last byte is acknowledged, or nothing will be; a stall is told from rest", async (t) => {
  let now = 0;
  t.mock.method(performance, "now", () => now);
  const { pipe, write, acknowledge } = linkOf();
  await pipe.allArrived();
  now = 9_000;
  assert.equal(pipe.stalledMs, 0, "nothing is under way");
  write(2 * KIB);
  now = 10_000;
  assert.equal(pipe.stalledMs, 1_000);
  acknowledge(KIB);
  assert.equal(pipe.stalledMs, 0);
  const all = pipe.allArrived();
  assert.equal(await Promise.race([all.then(() => "all"), Promise.resolve("not yet")]), "not yet");
  acknowledge(KIB);
  await all;
  write(KIB);
  const gone = pipe.allArrived();
  pipe.destroy();
  await gone;
});

test("what a handshake has left under way is no stall, and arrives as the rest does", () => {
  const { pipe, acknowledge } = linkOf(KIB);
  assert.ok(pipe.stalledMs < 5_000);
  acknowledge(KIB);
  assert.equal(pipe.arrived, KIB);
});
