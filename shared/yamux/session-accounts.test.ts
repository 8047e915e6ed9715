import assert from "node:assert/strict";
import { test } from "node:test";
import { until } from "../basics/testing/wait.ts";
import { MemoryPool } from "../limits/memory-pool.ts";
import type { MemoryShare } from "../limits/memory-share.ts";
import type { Stream } from "./stream.ts";
import { frame, handHeld } from "./testing/sessions.ts";

const KIB = 1024;

/** A session that has accepted streams of two accounts, each with so many unread bytes. */
async function twoAccounts({
  budget = 1024 * KIB,
  blueHolds,
  redHolds,
}: {
  budget?: number;
  blueHolds: number;
  redHolds: number;
}) {
  const pool = new MemoryPool(16 * 1024 * KIB);
  const [peers, blue, red] = ["(peers)", "blue", "red"].map((name) => pool.share(name)) as [
    MemoryShare,
    MemoryShare,
    MemoryShare,
  ];
  const { transport, accepted } = await handHeld("server", { pool: peers, budget, initialWindow: 256 * KIB });
  const take = (id: number, account: MemoryShare, bytes: number): Stream => {
    transport.receive(frame.syn(id));
    const stream = accepted.at(-1) ?? assert.fail("not accepted");
    stream.on("error", () => {});
    transport.receive(frame.data(id, Buffer.alloc(bytes / 2)));
    stream.chargeTo(account); // what it holds already goes with it
    transport.receive(frame.data(id, Buffer.alloc(bytes / 2)));
    return stream;
  };
  return { peers, blue, red, ofBlue: take(1, blue, blueHolds), ofRed: take(3, red, redHolds), take };
}

test("each account pays for its streams, and nobody for a stream that has ended", async () => {
  const { peers, blue, red, ofBlue, ofRed } = await twoAccounts({ blueHolds: 1_000, redHolds: 200 });
  assert.deepEqual([peers.held, blue.held, red.held], [0, 1_000, 200]);
  ofBlue.destroy();
  ofRed.destroy();
  assert.deepEqual([peers.held, blue.held, red.held], [0, 0, 0]);
});

test("an account above its cap loses its stalled streams, and another one of the session none", async () => {
  const { blue, red, ofBlue, ofRed } = await twoAccounts({ blueHolds: 64 * KIB, redHolds: 64 * KIB });
  blue.cap = 32 * KIB;
  await until(() => ofBlue.destroyed);
  assert.deepEqual([blue.held, red.held, ofRed.destroyed], [0, 64 * KIB, false]);
});

test("an account gets as much of the session's budget as it leaves to others", async () => {
  const budget = 256 * KIB;
  const { blue, red, ofBlue, ofRed, take } = await twoAccounts({ budget, blueHolds: 64 * KIB, redHolds: 64 * KIB });
  const another = take(5, blue, 64 * KIB);
  await until(() => ofBlue.destroyed || another.destroyed);
  assert.deepEqual([blue.held, red.held, ofRed.destroyed], [64 * KIB, 64 * KIB, false]);
});
