import assert from "node:assert/strict";
import { test } from "node:test";
import { until } from "../basics/testing/wait.ts";
import { collectGarbage } from "../node/engine.ts";
import type { SessionOptions } from "./bounds.ts";
import type { Stream } from "./stream.ts";
import { frame, handHeld, openStream, pair, readAll, turn } from "./testing/sessions.ts";

const KIB = 1024;

test("streams beyond the limit are refused: the peer's with RST, our own with overloaded", async () => {
  const { session, transport, accepted } = await handHeld("server", { maxStreams: 2 });
  transport.receive(frame.syn(1));
  session.open().on("error", () => {});
  transport.receive(frame.syn(3), frame.data(3, "under way"));
  assert.throws(() => session.open(), { reason: "overloaded" });
  assert.equal(accepted.length, 1);
  await turn();
  const refused = transport.frames().filter((sent) => sent.flags === 8);
  assert.deepEqual(
    refused.map((sent) => sent.id),
    [3],
  );
  accepted[0]?.destroy();
  transport.receive(frame.syn(5));
  assert.equal(accepted.length, 2);
});

/** A clock that the test sets, and streams 1, 3, 5 and so on with this number of unread bytes each. */
async function withStreams(sizes: readonly number[], options: Partial<SessionOptions>) {
  const clock = { nowMs: 0 };
  const held = await handHeld("server", { initialWindow: 1000, now: () => clock.nowMs, ...options });
  for (const [index, size] of sizes.entries()) {
    held.transport.receive(frame.syn(2 * index + 1), frame.data(2 * index + 1, Buffer.alloc(size)));
  }
  const reset = () => held.accepted.map((stream) => stream.destroyed);
  return { ...held, clock, reset };
}

test("past the budget the streams that hold most and were not read for longest are reset, and new ones are taken", async () => {
  const { session, transport, accepted, clock, reset } = await withStreams([700, 600, 500], { budget: 1500 });
  clock.nowMs = 1_000;
  accepted[0]?.read(1);
  transport.receive(frame.syn(7));
  assert.equal(accepted.length, 4);
  session.open().on("error", () => {});
  await until(() => session.resetForMemory > 0);
  assert.deepEqual(reset(), [false, true, false, false]);
  assert.equal((accepted[1]?.errored as NodeJS.ErrnoException | null)?.code, "ENOBUFS");
  assert.deepEqual([session.resetForMemory, session.bufferedBytes], [1, 1199]);
});

test("past the budget a reader that has only just stopped keeps its stream", async () => {
  const { session, clock, reset } = await withStreams([900, 700], { budget: 1500 });
  clock.nowMs = 199;
  await new Promise((resolve) => setTimeout(resolve, 120)); // two looks at the budget
  assert.deepEqual(reset(), [false, false]);
  clock.nowMs = 200;
  await until(() => session.resetForMemory > 0);
  assert.deepEqual(reset(), [true, false]);
});

test("a window full of pieces of one byte, each from a read of its own, is held in a few blocks", async () => {
  const { session, transport, accepted } = await handHeld("server", { initialWindow: 64 * KIB });
  transport.receive(frame.syn(1));
  for (let sent = 0; sent < 4 * KIB; sent++) {
    const read = Buffer.alloc(16 * KIB, frame.data(1, "x"));
    transport.receive(read.subarray(0, 13));
  }
  assert.equal(session.bufferedBytes, 4 * KIB);
  const stores = new Set<ArrayBufferLike>();
  accepted[0]?.on("data", (piece: Buffer) => stores.add(piece.buffer));
  await until(() => session.bufferedBytes === 0);
  const held = [...stores].reduce((sum, { byteLength }) => sum + byteLength, 0);
  assert.ok(held <= 3 * 4 * KIB, `${held} bytes in ${stores.size} blocks`);
});

test("past twice the budget the stream that holds most is reset, and counted", async () => {
  const { session, transport, accepted } = await handHeld("server", { initialWindow: 1000, budget: 1000 });
  for (const id of [1, 3, 5]) transport.receive(frame.syn(id));
  transport.receive(
    frame.data(1, Buffer.alloc(600)),
    frame.data(3, Buffer.alloc(900)),
    frame.data(5, Buffer.alloc(500)),
  );
  assert.equal(session.resetForMemory, 0, "at twice the budget");
  transport.receive(frame.data(1, "x"));
  assert.deepEqual(
    accepted.map((stream) => stream.destroyed),
    [false, true, false],
  );
  assert.equal((accepted[1]?.errored as NodeJS.ErrnoException | null)?.code, "ENOBUFS");
  assert.equal(session.resetForMemory, 1);
  assert.equal(session.bufferedBytes, 1101);
});

/** A session with stream 1 over on the wire and `unread` bytes of it not taken. */
async function withUnread(unread: number, options: { budget: number; maxStreams?: number }) {
  const held = await handHeld("server", { initialWindow: 1000, ...options });
  held.transport.receive(frame.syn(1), frame.data(1, Buffer.alloc(unread), 4));
  held.accepted[0]?.end();
  await turn();
  assert.equal(held.session.streamCount, 0);
  return held;
}

test("a stream that is over but unread counts as a stream until its reader has come", async () => {
  const { transport, accepted } = await withUnread(900, { budget: 1000, maxStreams: 2 });
  transport.receive(frame.syn(3), frame.syn(5));
  assert.equal(accepted.length, 2, "one is over, one is open: two are held");
  await readAll(accepted[0] as Stream);
  await turn();
  transport.receive(frame.syn(7));
  assert.equal(accepted.length, 3);
});

test("a stream that is over but unread is the one to go when it holds most", async () => {
  const { session, transport, accepted } = await withUnread(750, { budget: 800 });
  transport.receive(frame.syn(3), frame.syn(5), frame.data(3, Buffer.alloc(700)), frame.data(5, Buffer.alloc(150)));
  assert.equal(session.resetForMemory, 0, "at twice the budget");
  transport.receive(frame.data(5, "x"));
  assert.deepEqual(
    accepted.map((stream) => stream.destroyed),
    [true, false, false],
  );
  assert.deepEqual([session.resetForMemory, session.bufferedBytes], [1, 851]);
});

test("a session whose ids are used up opens no more and keeps what is open", async () => {
  const ends = pair({ maxStreamIds: 2 });
  const [near] = await openStream(ends);
  ends.client.session.open().destroy();
  assert.throws(() => ends.client.session.open(), { reason: "exhausted" });
  assert.equal(ends.client.session.draining, false);
  near.end("still");
  assert.equal((await readAll(ends.server.accepted[0] as Stream)).toString(), "still");
});

test("the first bytes of a stream must fit the initial window", async () => {
  const { session, transport } = await handHeld("client", { initialWindow: 1000 });
  assert.throws(() => session.open(Buffer.alloc(1001)), RangeError);
  session.open(Buffer.alloc(1000));
  await turn();
  assert.deepEqual(
    transport.frames().map((sent) => [sent.id, sent.flags, sent.length]),
    [[1, 1, 1000]],
  );
});

/** Sends window after window to a reader that takes all, with one round trip of 10 ms; returns every credit. */
async function growth(options: { budget?: number; elapsedMs: number; rounds: number }): Promise<number[]> {
  let now = 0;
  const held = await handHeld("server", { initialWindow: 64 * KIB, budget: options.budget ?? 2 ** 30, now: () => now });
  const { transport, accepted } = held;
  now = 10;
  transport.receive(frame.pong(1), frame.syn(1));
  assert.equal(held.session.rttMs, 10);
  const credits: number[] = [];
  let window = 64 * KIB;
  accepted[0]?.on("data", () => {});
  await turn();
  for (let round = 0; round < options.rounds; round++) {
    now += options.elapsedMs;
    transport.receive(frame.data(1, Buffer.alloc(window)));
    await turn();
    window = transport.frames().reduce((sum, sent) => sum + (sent.type === 1 ? sent.length : 0), 0);
    credits.push(window / KIB);
  }
  return credits;
}

test("the window of a reader that keeps up doubles to 16 MiB; a slow reader's stays", async () => {
  assert.deepEqual(
    await growth({ elapsedMs: 30, rounds: 10 }),
    [128, 256, 512, 1024, 2048, 4096, 8192, 16384, 16384, 16384],
  );
  assert.deepEqual(await growth({ elapsedMs: 40, rounds: 3 }), [64, 64, 64]);
});

test("windows stop growing where the session's budget ends", async () => {
  assert.deepEqual(await growth({ budget: 300 * KIB, elapsedMs: 1, rounds: 4 }), [128, 256, 256, 256]);
});

test("no window grows while unread bytes pass the budget", async () => {
  let now = 0;
  const held = await handHeld("server", { initialWindow: 1000, budget: 1500, now: () => now });
  const { transport, accepted } = held;
  now = 10;
  transport.receive(frame.pong(1), frame.syn(1), frame.syn(3), frame.syn(5));
  transport.receive(
    frame.data(1, Buffer.alloc(1000)),
    frame.data(3, Buffer.alloc(1000)),
    frame.data(5, Buffer.alloc(900)),
  );
  accepted[2]?.read();
  assert.equal(accepted[2]?.receiveWindow.reserved, 0);
  accepted[1]?.read();
  assert.equal(accepted[1]?.receiveWindow.reserved, 1000);
});

test("credit of a stream that ends goes back to the budget", async () => {
  let now = 0;
  const options = { initialWindow: 1000, maxWindow: 2000, budget: 1000, now: () => now };
  const { transport, accepted } = await handHeld("server", options);
  now = 10;
  transport.receive(frame.pong(1));
  for (const id of [1, 3, 5]) {
    transport.receive(frame.syn(id), frame.data(id, Buffer.alloc(1000)));
    accepted.at(-1)?.read();
    const grown = id !== 3;
    assert.equal(accepted.at(-1)?.receiveWindow.reserved, grown ? 1000 : 0, `stream ${id}`);
    if (id === 3) accepted[0]?.destroy();
  }
});

test("windows above the spec's 256 KiB are announced with SYN and ACK, and used", async () => {
  const initialWindow = 1024 * KIB;
  const ends = pair({ initialWindow, maxWindow: initialWindow });
  const near = ends.client.session.open(Buffer.from("head"));
  near.on("error", () => {});
  near.write(Buffer.alloc(2 * initialWindow));
  await until(() => ends.server.accepted.length === 1);
  const far = ends.server.accepted[0] as Stream;
  far.accept();
  far.write(Buffer.alloc(2 * initialWindow));
  await until(() => far.held === initialWindow && near.held === initialWindow);
  const spec = await handHeld("client", { initialWindow });
  spec.session.open();
  spec.session.open(Buffer.from("head"));
  await turn();
  assert.deepEqual(
    spec.transport.frames().map((sent) => [sent.type, sent.flags, sent.id, sent.length / KIB]),
    [
      [1, 1, 1, 768],
      [0, 1, 3, 4 / KIB],
      [1, 0, 3, 768],
    ],
  );
  ends.client.session.destroy();
});

test("an idle stream costs less than 6 KiB at each end", async () => {
  const ends = pair();
  const heapAt = async (count: number) => {
    while (ends.client.session.streamCount < count) ends.client.session.open().on("error", () => {});
    await until(() => ends.server.accepted.length === count);
    collectGarbage();
    return process.memoryUsage().heapUsed;
  };
  const before = await heapAt(500);
  const each = ((await heapAt(2_500)) - before) / 2_000;
  assert.ok(each < 12 * KIB, `${Math.round(each)} bytes for both ends of a stream`);
  ends.client.session.destroy();
});
