import assert from "node:assert/strict";
import { Duplex } from "node:stream";
import { test } from "node:test";
import { setImmediate as turn } from "node:timers/promises";
import { until } from "../../shared/basics/testing/wait.ts";
import { RECLAIM, UNBOUNDED } from "../../shared/limits/memory-account.ts";
import { MemoryPool } from "../../shared/limits/memory-pool.ts";
import { fakeAgent } from "../tunnels/testing/fake-agent.ts";
import { PendingCaller } from "./connect.ts";
import { CONNECT, ESTABLISHED, type Line, start } from "./testing/caller.ts";

test("a CONNECT is answered with 200 alone, bytes flow, and one line tells of it", async () => {
  const agent = fakeAgent({ onTarget: (stream) => stream.pipe(stream) });
  await using world = await start([agent]);
  const caller = world.call();
  assert.equal(await caller.ask(CONNECT), ESTABLISHED);
  caller.socket.write("hello");
  await until(() => caller.text.endsWith("hello"));
  caller.socket.end();
  await until(() => caller.ended && world.lines.length === 1);
  const {
    outcome,
    cluster,
    caller: name,
    target,
    agent: agentId,
    bytesUp,
    bytesDown,
    endedBy,
  } = world.lines[0] as Line;
  assert.deepEqual([outcome, cluster, name, target, agentId], ["ok", "default", "unix", "10.0.0.1:10250", "a"]);
  assert.deepEqual([bytesUp, bytesDown, endedBy], [5, 5, "caller"]);
});

test("a caller that speaks first does not wait for the gap", async () => {
  const agent = fakeAgent({ onTarget: (stream) => stream.pipe(stream) });
  await using world = await start([agent], { establishedGapMs: 60_000 });
  const caller = world.call();
  await caller.ask(CONNECT);
  caller.socket.write("first");
  await until(() => caller.text.endsWith("first"));
});

test("bytes sent together with the CONNECT, and before the answer, reach the target once and in order", async () => {
  const got: Buffer[] = [];
  let answer: (() => void) | undefined;
  const agent = fakeAgent({
    answer: () =>
      new Promise((resolve) => {
        answer = () => resolve({ ok: true });
      }),
    onTarget: (stream) => stream.on("data", (chunk: Buffer) => got.push(chunk)),
  });
  await using world = await start([agent]);
  const caller = world.call();
  caller.socket.write(`${CONNECT}one `);
  await until(() => answer !== undefined);
  caller.socket.write("two ");
  await new Promise((resolve) => setTimeout(resolve, 20));
  assert.equal(Buffer.concat(got).length, 0, "nothing before the dial is over");
  answer?.();
  await until(() => caller.text === ESTABLISHED);
  caller.socket.end("three");
  await until(() => Buffer.concat(got).length >= 13);
  assert.equal(Buffer.concat(got).toString(), "one two three");
  await until(() => agent.streams[0]?.readableEnded === true);
  agent.streams[0]?.end();
  await until(() => world.lines.length === 1);
  assert.equal(world.lines[0]?.bytesUp, 13);
});

test("losing the agent ends its connections at once, and the log says who", async () => {
  const agent = fakeAgent({ onTarget: (stream) => stream.pipe(stream) });
  await using world = await start([agent]);
  const caller = world.call();
  await caller.ask(CONNECT);
  caller.socket.write("x");
  await until(() => caller.text.endsWith("x"));
  agent.cut();
  await until(() => caller.socket.destroyed && world.lines.length === 1);
  assert.equal(caller.ended, false);
  assert.equal(world.lines[0]?.outcome, "agent_lost");
  assert.equal(world.lines[0]?.endedBy, "agent");
  assert.equal(world.lines[0]?.reason, "the session ended");
});

test("an agent whose drain has run out is not taken for one that is lost, unless the time was ours", async () => {
  for (const [closedBecause, reason] of [
    [undefined, /^the agent has left in order, and this was still open when its --drain-timeout was over$/],
    ['cluster "default" is suspended', /^the session ended$/],
  ] as const) {
    const agent = fakeAgent({ onTarget: (stream) => stream.pipe(stream) });
    await using world = await start([agent]);
    const caller = world.call();
    await caller.ask(CONNECT);
    world.cluster.closedBecause = closedBecause;
    void agent.session.close(0);
    await until(() => caller.socket.destroyed && world.lines.length === 1);
    const [line] = world.lines;
    assert.deepEqual([line?.outcome, line?.endedBy], ["agent_lost", "agent"]);
    assert.match(line?.reason ?? "", reason);
  }
});

test("an agent that is lost after it has asked to leave is not blamed on its --drain-timeout", async () => {
  const agent = fakeAgent({ onTarget: (stream) => stream.pipe(stream) });
  await using world = await start([agent]);
  const caller = world.call();
  await caller.ask(CONNECT);
  agent.session.drain();
  await until(() => agent.tunnel.leaving);
  agent.cut(new Error("read ECONNRESET"));
  await until(() => caller.socket.destroyed && world.lines.length === 1);
  const [line] = world.lines;
  assert.deepEqual([line?.outcome, line?.reason], ["agent_lost", "the session ended: read ECONNRESET"]);
});

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
