import assert from "node:assert/strict";
import { Duplex } from "node:stream";
import { test } from "node:test";
import { setImmediate as turn } from "node:timers/promises";
import { UNBOUNDED } from "../../shared/limits/memory-account.ts";
import { MemoryPool } from "../../shared/limits/memory-pool.ts";
import { RECLAIM } from "../../shared/limits/reclaim.ts";
import { PendingCaller } from "./pending-caller.ts";

/** What it is given to write is never done. */
class Unwritable extends Duplex {
  readonly given: string[] = [];

  override _read(): void {}

  override _write(chunk: Buffer): void {
    this.given.push(chunk.toString("latin1"));
  }
}

test("without a gap nothing waits for the 200 to be done: of a caller that is gone it may never be", async () => {
  const socket = new Unwritable();
  const pending = new PendingCaller(socket, UNBOUNDED);
  await pending.establish(0);
  pending.release();
  assert.deepEqual(socket.given, ["HTTP/1.1 200 Connection Established\r\n\r\n"]);
  socket.destroy();
});

/** A caller that has sent 3,000 bytes behind its CONNECT. */
function eager(memory: ConstructorParameters<typeof PendingCaller>[1]) {
  const socket = new Unwritable();
  const pending = new PendingCaller(socket, memory);
  socket.push(Buffer.alloc(1_000));
  socket.push(Buffer.alloc(2_000));
  return { socket, pending };
}

test("what a caller sends before its answer is counted until the target has it, or it is refused", async () => {
  const pool = new MemoryPool(2 ** 20);
  const [one, other] = [eager(pool.share("red")), eager(pool.share("red"))];
  await turn();
  assert.equal(pool.held, 6_000);
  assert.equal(one.pending.sendEarly(new Unwritable()), 3_000);
  assert.equal(pool.held, 3_000);
  other.pending.release();
  assert.equal(pool.held, 0);
  for (const { socket } of [one, other]) socket.destroy();
});

test("what came before the caller was admitted moves to the account of its cluster, and what comes later goes there", async () => {
  const pool = new MemoryPool(2 ** 20);
  const [unauthenticated, red] = [pool.share(""), pool.share("red")];
  const { socket, pending } = eager(unauthenticated);
  await turn();
  const held = () => [unauthenticated.held, red.held];
  assert.deepEqual(held(), [3_000, 0]);
  pending.chargeTo(red);
  assert.deepEqual(held(), [0, 3_000]);
  socket.push(Buffer.alloc(500));
  await turn();
  assert.deepEqual(held(), [0, 3_500]);
  assert.equal(
    red.reclaim(() => false, performance.now() + 1_000, RECLAIM.stalled),
    1,
    "it is its cluster's to end",
  );
  assert.deepEqual(held(), [0, 0]);
  pending.release();
  socket.destroy();
});

test("early bytes that came one by one are held, and reach the target, in few pieces", async () => {
  const pool = new MemoryPool(2 ** 20);
  const socket = new Unwritable();
  const pending = new PendingCaller(socket, pool.share("red"));
  for (let piece = 0; piece < 2_000; piece++) {
    socket.push(Buffer.alloc(20)); // a TLS record of its own
    await turn();
  }
  assert.equal(pool.held, 40_000);
  const target = new Unwritable();
  const written: number[] = [];
  target.write = ((chunk: Buffer) => written.push(chunk.length) > 0) as Duplex["write"];
  assert.equal(pending.sendEarly(target), 40_000);
  assert.ok(written.length < 20, `${written.length} pieces`);
  pending.release();
  socket.destroy();
});

test("where a little memory is missing few of those that wait are refused, also while their token is verified", async () => {
  const pool = new MemoryPool(29_000);
  const share = pool.share("red");
  const all = Array.from({ length: 10 }, () => eager(share));
  const deadline = performance.now() + 5_000;
  while (pool.ended === 0 && performance.now() < deadline) await turn();
  assert.deepEqual([pool.ended, pool.held], [2, 8 * 3_000], "90 % of the limit may be held");
  for (const { socket, pending } of all) {
    pending.release();
    socket.destroy();
  }
});

test("where memory is short a CONNECT that waits with such bytes is refused as overloaded", async () => {
  const pool = new MemoryPool(2_000);
  const { socket, pending } = eager(pool.share("red"));
  const deadline = performance.now() + 5_000;
  while (pending.cancellation.reason === undefined && performance.now() < deadline) await turn();
  assert.equal(pending.cancellation.reason?.code, "overloaded");
  pending.release();
  assert.equal(pool.held, 0);
  socket.destroy();
});
