import assert from "node:assert/strict";
import { once } from "node:events";
import { type AddressInfo, connect, createServer, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Duplex } from "node:stream";
import { type TestContext, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { until } from "../basics/testing/wait.ts";
import { SharedInterval } from "../basics/timers.ts";
import { DESTROYED, memoryNeeded } from "../limits/memory-account.ts";
import { MemoryPool } from "../limits/memory-pool.ts";
import { RECLAIM, reclaim } from "../limits/reclaim.ts";
import type { Stream } from "../yamux/stream.ts";
import { openStream, pair } from "../yamux/testing/sessions.ts";
import { splice } from "./splice.ts";
import { SpliceMemory, type WaitingSink } from "./splice-memory.ts";

const KIB = 1024;
const MIB = 1024 * KIB;
/** `net.core.wmem_default` of Linux. */
const UNIX_BUFFER = 208 * KIB;

/** A sink that takes nothing, which is no socket. */
class Stuck extends Duplex {
  override _read(): void {}

  override _write(): void {}
}

function direction(sink: Duplex, source: Duplex = new Stuck()): WaitingSink & { taken: number; waitingWrites: number } {
  return { source, sink, waitingWrites: 1, taken: 0 };
}

/** The bytes that this direction holds, in a pool of its own. */
function counted(one: WaitingSink) {
  const pool = new MemoryPool(1e9);
  const share = pool.share("red");
  return { pool, share, memory: new SpliceMemory(share, [one], () => {}) };
}

/** Whatever holds something has been looked at. */
function looked(): Promise<void> {
  return new Promise((resolve, reject) => {
    const deadline = setTimeout(reject, 5_000, new Error("no look")); // looks keep no process alive
    const place = SharedInterval.every(100).add(() => {
      place.leave();
      clearTimeout(deadline);
      resolve();
    });
  });
}

/** The writing end of a unix socket that takes nothing more, because nobody reads. */
async function unixSocket(t: TestContext): Promise<Socket> {
  const path = join(tmpdir(), `culvert-splice-memory-${process.pid}.sock`);
  const server = createServer((socket) => socket.pause()).listen(path);
  await once(server, "listening");
  const socket = connect(path).on("error", () => {});
  await once(socket, "connect");
  t.after(() => {
    socket.destroy();
    server.close();
  });
  while (socket.writableLength < 64 * KIB) socket.write(Buffer.alloc(64 * KIB));
  return socket;
}

test("a sink that takes everything holds nothing and is not counted again", async () => {
  const { pool, memory } = counted(direction(new Stuck()));
  memory.onWrite(false);
  await sleep(250);
  assert.equal(pool.held, 0);
  assert.equal(memory.held, 0);
});

test("what waits in a sink counts, with each write, and what its source has read ahead", async () => {
  const sink = new Stuck();
  const one = direction(sink);
  const { pool, memory } = counted(one);
  one.source.unshift(Buffer.alloc(500));
  sink.write(Buffer.alloc(1_000));
  memory.onWrite(true);
  assert.equal(pool.held, 500 + 1_000 + 256);
  one.waitingWrites = 3;
  memory.onWrite(true);
  await looked();
  assert.equal(pool.held, 500 + 1_000 + 3 * 256);
  memory.close();
  assert.equal(pool.held, 0);
});

test("what a source has read ahead counts while a rate alone holds it up, but not where it counts that itself", () => {
  for (const [more, held] of [
    [{}, 500],
    [{ readAhead: 700 }, 700],
    [{ held: 500 }, 0],
  ] as const) {
    const source = Object.assign(new Stuck(), more);
    source.unshift(Buffer.alloc(500));
    const { pool, memory } = counted(direction(new Stuck(), source));
    memory.onWrite(true);
    assert.equal(pool.held, held);
    memory.close();
  }
});

test("a unix socket that takes nothing more counts with what the kernel holds for it", async (t) => {
  const socket = await unixSocket(t);
  const { pool, memory } = counted(direction(socket));
  memory.onWrite(true);
  assert.ok(Math.abs(pool.held - socket.writableLength - UNIX_BUFFER) <= 4 * KIB, `${pool.held} bytes`);

  pool.onProcess(KIB); // short, so that what stays in the kernel counts on
  let ended = false;
  const given = new SpliceMemory(pool.share("blue"), [direction(socket)], () => {
    ended = true;
  });
  given.onWrite(true);
  memory.close();
  given.evict();
  assert.deepEqual([ended, given.held], [true, 0]);
  assert.equal(pool.held, UNIX_BUFFER);
  pool.onProcess(0);
  assert.equal(pool.held, 0);
});

test("bytes left in the kernel count for a cluster that is not served any more, until the process has enough memory", async (t) => {
  const socket = await unixSocket(t);
  const { pool, share, memory } = counted(direction(socket));
  memory.onWrite(true);
  share.close();
  pool.onProcess(KIB);
  memory.evict();
  assert.equal(pool.held, UNIX_BUFFER);
  pool.onProcess(0);
  assert.deepEqual([pool.held, [...pool.shares()].length], [0, 0]);
});

test("a splice whose stream or socket was ended for its memory is not ended and counted again", () => {
  const sink = new Stuck();
  const one = direction(sink);
  const { pool, memory } = counted(one);
  sink.write(Buffer.alloc(1_000));
  memory.onWrite(true);
  assert.equal(memory.held, 1_000 + 256);
  one.source.destroy();
  assert.equal(memory.held, 0);
  memory.close();
  assert.equal(pool.held, 0);
});

test("when a stream is ended for its memory, only what it leaves in the kernel counts from that moment on", async (t) => {
  const socket = await unixSocket(t);
  const stream = new Stuck().on("error", () => {});
  const { pool, memory } = counted(direction(socket, stream));
  memory.onWrite(true);
  pool.onProcess(KIB);
  stream.destroy(memoryNeeded());
  stream.emit(DESTROYED);
  assert.deepEqual([pool.held, memory.held], [UNIX_BUFFER, 0]);
  pool.onProcess(0);
  assert.equal(pool.held, 0);
});

test("bytes of a stream that ended cleanly are held for a caller that does not read, and can be reclaimed", async () => {
  const pool = new MemoryPool(1e9);
  const [caller, stream] = [new Stuck(), new Stuck()];
  let ended = 0;
  const both = [direction(caller, stream), direction(stream, caller)];
  const memory = new SpliceMemory(pool.share("red"), both, () => ended++);
  caller.write(Buffer.alloc(1_000));
  memory.onWrite(true);
  stream.resume().push(null);
  stream.end();
  await once(stream, "close");
  stream.emit(DESTROYED);
  assert.deepEqual([pool.held, memory.held], [1_000 + 256, 1_000 + 256]);
  memory.evict();
  assert.deepEqual([pool.held, ended], [0, 1]);
});

test("the time without progress begins when a sink last took something", async () => {
  const sink = new Stuck();
  const one = direction(sink);
  const { memory } = counted(one);
  sink.write(Buffer.alloc(1_000));
  memory.onWrite(true);
  const begun = memory.lastProgressAt;
  await sleep(250); // two looks
  assert.equal(memory.lastProgressAt, begun);
  assert.equal(memory.longestPauseMs, 0);
  one.taken = 1;
  memory.onWrite(true);
  await looked();
  assert.ok(memory.lastProgressAt > begun);
  assert.equal(
    memory.longestPauseMs,
    memory.lastProgressAt - begun,
    "the time for which it stood still, and then moved again",
  );
  memory.close();
});

test("a TCP socket counts with what the kernel may hold for it once it has been offered what waits, and not before", async (t) => {
  const server = createServer((socket) => socket.pause()).listen(0, "127.0.0.1");
  await once(server, "listening");
  const socket = connect((server.address() as AddressInfo).port, "127.0.0.1").on("error", () => {});
  await once(socket, "connect");
  t.after(() => {
    socket.destroy();
    server.close();
  });
  const { pool, memory } = counted({ ...direction(socket), taken: 1_000_000 });
  socket.cork();
  socket.write(Buffer.alloc(64 * KIB));
  memory.onWrite(true);
  assert.ok(pool.held < 65 * KIB, `${pool.held} bytes: it is only gathered`);
  socket.uncork();
  await looked();
  assert.equal(pool.held, 0, "the kernel has taken it");

  for (let written = 0; socket.writableLength < 64 * KIB && written < 100; written++) socket.write(Buffer.alloc(MIB));
  memory.onWrite(true);
  await looked();
  assert.ok(pool.held >= 1_000_000 + 64 * KIB, `${pool.held} bytes`);
  memory.close();
});

const CONNECTIONS = 15;
const WINDOW = 256 * KIB;

/**
 * Connections that hold the same each, in the splice and in the stream, for callers that have taken nothing for 0.2 s.
 */
async function stalled(t: TestContext) {
  const share = new MemoryPool(1e9).share("red");
  const ends = pair({ initialWindow: WINDOW, maxWindow: WINDOW, pool: share });
  const streams: Stream[] = [];
  for (let number = 0; number < CONNECTIONS; number++) {
    const [near, stream] = await openStream(ends);
    void splice(new Stuck(), stream, { memory: share });
    near.write(Buffer.alloc(8 * WINDOW));
    streams.push(stream);
  }
  t.after(() => {
    ends.client.session.destroy();
    ends.server.session.destroy();
  });
  await until(() => share.held >= CONNECTIONS * WINDOW);
  const stands = performance.now();
  await until(() => performance.now() - stands > 300);
  return { share, ends, streams };
}

test("no more connections are ended than are needed, though each holds some in its stream and some in its splice", async (t) => {
  const { share, streams } = await stalled(t);
  const needed = share.held / 5;
  const isEnough = () => share.held <= 4 * needed;
  assert.equal(reclaim(streams, isEnough, performance.now(), RECLAIM.stalled), CONNECTIONS / 5);
});

test("what the splices of a tunnel hold stops counting at the moment when its session is lost", async (t) => {
  const { share, ends } = await stalled(t);
  ends.server.session.destroy();
  assert.equal(share.held, 0);
});
