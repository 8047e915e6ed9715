import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { test } from "node:test";
import { until } from "../basics/testing/wait.ts";
import { Flag, FrameType } from "./frame.ts";
import type { Stream } from "./stream.ts";
import {
  type End,
  type FakeTransport,
  frame,
  handHeld,
  parseFrames,
  turn,
  type WireFrame,
} from "./testing/sessions.ts";

const KIB = 1024;
const WINDOWS = { initialWindow: 256 * KIB, maxWindow: 256 * KIB };

/** Opens `count` streams at a client whose transport takes nothing until told. */
async function stuckClient(
  count: number,
  options = {},
): Promise<End & { transport: FakeTransport; streams: Stream[] }> {
  const held = await handHeld("client", { ...WINDOWS, ...options });
  const streams = Array.from({ length: count }, () => held.session.open().on("error", () => {}));
  await turn();
  held.transport.frames();
  held.transport.takesAtOnce = false;
  return { ...held, streams };
}

/** Takes all that is pending, again and again, until nothing more comes. */
async function drainAll(transport: FakeTransport): Promise<WireFrame[]> {
  const frames: WireFrame[] = [];
  do {
    frames.push(...transport.frames());
    transport.take();
    await turn();
  } while (transport.writes.length > 0);
  return frames;
}

test("streams take turns, one frame each, and a small write waits for one round only", async () => {
  const { transport, streams } = await stuckClient(4, { maxPending: 64 * KIB });
  const [first, second, third, small] = streams as [Stream, Stream, Stream, Stream];
  for (const bulk of [first, second, third]) bulk.write(Buffer.alloc(200 * KIB));
  small.write("x");
  const order = (await drainAll(transport)).map((sent) => sent.id);
  const position = order.indexOf(small.id);
  assert.ok(position <= 6, `the small write went as frame ${position + 1}`);
  const bulkOrder = order.filter((id) => id !== small.id).slice(1, 10); // behind what the first was alone with
  for (let at = 3; at < bulkOrder.length; at++) assert.equal(bulkOrder[at], bulkOrder[at - 3], `${bulkOrder}`);
});

test("no frame carries more than one turn's payload, and a window's worth goes when the window allows", async () => {
  const { transport, streams } = await stuckClient(1, { maxFramePayload: 1000 });
  streams[0]?.write(Buffer.alloc(300 * KIB));
  const lengths = (await drainAll(transport)).map((sent) => sent.length);
  assert.ok(Math.max(...lengths) <= 1000);
  assert.equal(
    lengths.reduce((sum, length) => sum + length, 0),
    256 * KIB,
  );
});

test("control frames go in front of data that waits", async () => {
  const { transport, streams } = await stuckClient(2, { maxPending: 64 * KIB });
  streams[0]?.write(Buffer.alloc(256 * KIB));
  await turn();
  transport.frames();
  transport.receive(frame.ping(77));
  streams[1]?.destroy();
  await turn();
  assert.equal(transport.frames().length, 0, "no room yet");
  transport.take();
  const [pong, reset] = transport.frames();
  assert.deepEqual([pong?.type, pong?.flags, pong?.length], [2, 2, 77]);
  assert.deepEqual([reset?.type, reset?.flags, reset?.id], [1, 8, streams[1]?.id]);
});

test("what the transport has not taken stays under the bound and one frame", async () => {
  const { transport, streams } = await stuckClient(20, { maxPending: 100 * KIB, maxFramePayload: 32 * KIB });
  for (const stream of streams) stream.write(Buffer.alloc(64 * KIB));
  for (let round = 0; round < 200; round++) {
    assert.ok(transport.pendingBytes <= 132 * KIB + 12, `${transport.pendingBytes} bytes pending`);
    transport.take(7 * KIB);
  }
});

test("data waits until a quarter of what may be pending is free, and control frames do not", async () => {
  const { transport, streams } = await stuckClient(1, { maxPending: 256 * KIB });
  transport.pendingBytes = 256 * KIB;
  streams[0]?.write(Buffer.alloc(100 * KIB));
  transport.take(60 * KIB);
  transport.receive(frame.ping(5));
  await turn();
  assert.deepEqual(
    transport.frames().map(({ type }) => type),
    [2],
  );
  transport.take(5 * KIB);
  const lengths = transport.frames().map(({ length }) => length);
  assert.deepEqual(lengths, [64 * KIB - 12, 36 * KIB + 12]);
});

test("a burst of opens is sent before the turn ends and does not count as a stuck transport", async () => {
  const { session, transport } = await handHeld("client");
  for (let count = 0; count < 2_000; count++) session.open(Buffer.alloc(1_000)).on("error", () => {});
  assert.ok(transport.frames().length > 1_900);
});

test("while the transport takes nothing, opening stops at a megabyte of waiting first payloads", async () => {
  const { session, transport } = await handHeld("client");
  transport.takesAtOnce = false;
  transport.pendingBytes = 1024 * KIB;
  const opened: Stream[] = [];
  assert.throws(
    () => {
      for (;;) opened.push(session.open(Buffer.alloc(4_000)).on("error", () => {}));
    },
    { reason: "overloaded" },
  );
  assert.ok(opened.length > 200 && opened.length < 300, `${opened.length} opened`);
});

test("small writes of one turn leave in one batch", async () => {
  const { session, transport } = await handHeld("client");
  const stream = session.open();
  for (let count = 0; count < 5; count++) stream.write("abc");
  assert.equal(transport.writes.length, 0);
  await turn();
  assert.equal(transport.writes.length, 1);
});

/** Twelve streams of a session that have sent nothing but their first frames. */
async function withOpenStreams(now: () => number) {
  const { session, transport } = await handHeld("client", { now });
  const streams = Array.from({ length: 12 }, () => session.open());
  await turn();
  transport.frames();
  return { streams, transport };
}

test("small frames leave in one batch when a turn has brought nothing more, or half a millisecond after the first", async () => {
  let now = 0;
  const { streams, transport } = await withOpenStreams(() => now);
  /** Frames that have left after each turn, in which one stream writes. */
  const left: number[] = [];
  const turns = async (...writers: (Stream | undefined)[]): Promise<void> => {
    for (const writer of writers) {
      writer?.write("x");
      await new Promise((resolve) => setImmediate(resolve));
      left.push(transport.frames().length);
    }
  };
  await turns(...streams.slice(0, 4), undefined);
  assert.deepEqual(left.splice(0), [0, 0, 0, 0, 4], "one a turn, and then none");
  await turns(...streams.slice(4, 6));
  now += 0.6;
  await turns(...streams.slice(6, 8), undefined, undefined);
  assert.deepEqual(left.splice(0), [0, 0, 3, 0, 1, 0], "one a turn, and time passes");
});

test("on a loop whose turns are long only the first small frame waits for another turn", async () => {
  let now = 0;
  const { streams, transport } = await withOpenStreams(() => now);
  /** Frames that have left at the end of a turn that takes `turnMs`, and at whose end two streams write. */
  const leftAfter = async (turnMs: number): Promise<number> => {
    now += turnMs;
    for (const stream of streams.splice(0, 2)) stream.write("x");
    await new Promise((resolve) => setImmediate(resolve));
    return transport.frames().length;
  };
  assert.deepEqual([await leftAfter(5), await leftAfter(5), await leftAfter(5), await leftAfter(5)], [0, 4, 2, 2]);
  assert.deepEqual([await leftAfter(0.1), await leftAfter(0.1)], [0, 0], "they are short again");
});

test("a single writer sends its next write at once, and those behind it in one batch", async () => {
  const { session, transport } = await handHeld("client");
  const [one, other] = [session.open(), session.open()] as const;
  await turn();
  /** The frames that leave at once, and those that leave in the batch behind them. */
  const turnOf = async (...words: (string | (() => void))[]): Promise<string[]> => {
    transport.writes.length = 0;
    for (const word of words) typeof word === "string" ? one.write(word) : word();
    const atOnce = transport.writes.length;
    await turn();
    const written = transport.writes.map((bytes) =>
      parseFrames(bytes)
        .map(({ payload }) => payload)
        .join(""),
    );
    return [written.slice(0, atOnce).join(), written.slice(atOnce).join()];
  };
  const others = () => void other.write("x");
  const ping = () => void session.ping();
  assert.deepEqual(await turnOf("a"), ["", "a"], "the first ever");
  assert.deepEqual(await turnOf("b"), ["b", ""]);
  assert.deepEqual(await turnOf("c", "d", "e"), ["c", "de"]);
  assert.deepEqual(await turnOf("f"), ["", "f"], "another write came in the batch before");
  assert.deepEqual(await turnOf("g", others), ["g", "x"]);
  assert.deepEqual(await turnOf("h", others), ["", "hx"]);
  assert.deepEqual(await turnOf("i"), ["", "i"], "another stream wrote in the batch before");
  assert.deepEqual(await turnOf(ping), ["", ""]);
  assert.deepEqual(await turnOf("j"), ["j", ""], "a turn without data changes nothing");
  assert.deepEqual(await turnOf(ping, "k"), ["", "k"], "it goes with what waits already");
  assert.deepEqual(await turnOf("l"), ["", "l"], "a control frame counts, too");
});

test("a stream that was destroyed sends nothing behind its reset", async () => {
  const { transport, streams } = await stuckClient(2, { maxPending: 32 * KIB });
  const [gone, other] = streams as [Stream, Stream];
  other.write(Buffer.alloc(100 * KIB));
  gone.write(Buffer.alloc(100 * KIB));
  gone.destroy();
  const frames = (await drainAll(transport)).filter((sent) => sent.id === gone.id);
  assert.deepEqual([frames.at(-1)?.type, frames.at(-1)?.flags], [1, 8]);
  assert.equal(frames.filter((sent) => sent.flags === 8).length, 1);
});

test("closing sends the last control frames even if the transport is full", async () => {
  const { session, transport, streams } = await stuckClient(1, { maxPending: 64 * KIB });
  const [stream] = streams as [Stream];
  transport.receive(frame.fin(stream.id));
  stream.resume();
  stream.end(Buffer.alloc(64 * KIB - 12));
  await turn();
  assert.ok(transport.pendingBytes >= 64 * KIB);
  const closing = session.close(1_000);
  await turn();
  const last = transport.frames().slice(-2);
  assert.deepEqual(
    last.map((sent) => [sent.type, sent.flags]),
    [
      [1, 4],
      [3, 0],
    ],
  );
  assert.equal(transport.ended, true);
  transport.close();
  await closing;
});

test("on a path with little room a turn is short, so that the next stream has one soon", async () => {
  const { transport, streams } = await stuckClient(2, { maxPending: 256 * KIB });
  transport.pathRoom = 10 * KIB;
  for (const stream of streams) stream.write(Buffer.alloc(60 * KIB));
  const turns: [number, number][] = [];
  for (let round = 0; round < 4; round++) {
    for (const { id, length } of transport.frames()) turns.push([id, length]);
    transport.take();
  }
  assert.ok(
    turns.every(([, length]) => length <= 10 * KIB),
    JSON.stringify(turns),
  );
  assert.equal(new Set(turns.map(([id]) => id)).size, 2);
});

const RECORD = 16 * KIB;
/** A read of a socket; a TLS record is as long as a quarter of it, and there are headers. */
const READ = 64 * KIB;

/** Opens a stream whose SYN has gone. */
async function bulkStream(options = {}): Promise<End & { transport: FakeTransport; stream: Stream }> {
  const { streams, ...held } = await stuckClient(1, { bulkBytes: 0, ...options });
  held.transport.takesAtOnce = true;
  return { ...held, stream: streams[0] as Stream };
}

const payloadIn = (frames: WireFrame[]): number => frames.reduce((sum, { length }) => sum + length, 0);

test("large writes leave in whole records, and the tail of one goes with the next", async () => {
  const { transport, stream } = await bulkStream();
  const written = randomBytes(3 * READ);
  for (let read = 1; read <= 3; read++) {
    stream.write(written.subarray((read - 1) * READ, read * READ));
    assert.equal(stream.writableLength, 0, "the write is called back");
    assert.deepEqual(
      transport.writes.map(({ length }) => length % RECORD),
      Array(read).fill(0),
    );
  }
  const sent = transport.frames();
  assert.equal(payloadIn(sent), 3 * (READ - 12));
  assert.ok(written.subarray(0, 3 * (READ - 12)).equals(Buffer.concat(sent.map(({ payload }) => payload))));
});

test("a tail is not sent before its period is over, however often there are new ones", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const { transport, stream } = await bulkStream();
  for (let read = 1; read <= 3; read++) {
    stream.write(Buffer.alloc(READ));
    t.mock.timers.tick(1);
    await turn();
  }
  assert.equal(payloadIn(transport.frames()), 3 * (READ - 12));
  t.mock.timers.tick(1);
  await turn();
  assert.equal(payloadIn(transport.frames()), 3 * 12);
});

test("a write is not called back while the window holds back its tail", async () => {
  const { transport, stream } = await bulkStream({ initialWindow: READ - 1, maxWindow: READ - 1 });
  stream.write(Buffer.alloc(READ));
  assert.equal(stream.writableLength, READ);
  transport.receive(frame.windowUpdate(stream.id, 1));
  assert.equal(stream.writableLength, 0);
});

test("the tail of a large write is sent a little later when nothing follows, and at once before an end", async () => {
  for (const ends of [false, true]) {
    const { transport, stream } = await bulkStream();
    stream.write(Buffer.alloc(READ));
    transport.frames();
    await turn();
    assert.equal(transport.writes.length, 0);
    if (ends) {
      stream.end();
      await turn();
    } else await until(() => transport.writes.length > 0);
    const [rest, fin] = transport.frames();
    assert.deepEqual([rest?.type, rest?.length], [0, 12]);
    assert.equal(fin?.flags, ends ? 4 : undefined);
  }
});

test("a tail does not wait before bulkBytes have gone one way", async () => {
  const { transport, stream } = await bulkStream({ bulkBytes: READ + 1 });
  const sendsAll = (): boolean => {
    stream.write(Buffer.alloc(READ));
    return payloadIn(transport.frames()) === READ;
  };
  assert.equal(sendsAll(), true);
  assert.equal(sendsAll(), false);
  stream.resume();
  transport.receive(frame.data(stream.id, "go on"));
  transport.frames();
  stream.write(Buffer.alloc(READ - 12));
  assert.equal(payloadIn(transport.frames()), READ, "with the tail");
});

test("a tail in which a record ends is sent whole when it is due", async () => {
  const { transport, stream } = await bulkStream();
  stream.write(Buffer.alloc(READ));
  transport.frames();
  transport.wholeRecords = () => 5;
  await until(() => transport.writes.length > 0);
  assert.equal(payloadIn(transport.frames()), 12);
});

test("a frame does not end with a record that ends too soon", async () => {
  const { transport, stream } = await bulkStream();
  transport.wholeRecords = () => 100;
  stream.write(Buffer.alloc(400));
  await turn();
  assert.deepEqual(
    transport.frames().map(({ length }) => length),
    [400],
  );
});

test("a tail is dropped with its stream", async () => {
  const { transport, stream } = await bulkStream();
  stream.write(Buffer.alloc(READ));
  transport.frames();
  stream.destroy();
  await turn();
  const [reset] = transport.frames();
  assert.deepEqual([reset?.type, reset?.flags], [1, 8]);
  await new Promise((resolve) => setTimeout(resolve, 10));
  assert.deepEqual(transport.frames(), []);
});

test("the tail behind one whole record waits", async () => {
  const { transport, stream } = await bulkStream();
  transport.wholeRecords = () => RECORD;
  stream.write(Buffer.alloc(RECORD + 1_024));
  assert.equal(payloadIn(transport.frames()), RECORD);
});

test("the tail of a small write is sent in the same turn", async () => {
  const { transport, stream } = await bulkStream();
  transport.wholeRecords = () => RECORD - 1;
  stream.write(Buffer.alloc(RECORD));
  await turn();
  assert.deepEqual(
    transport.frames().map(({ length }) => length),
    [RECORD - 1, 1],
  );
});

test("among others a stream's turn is half a frame unless the path has ample room", async () => {
  for (const [pathRoom, records] of [
    [512 * KIB - 1, 2],
    [1024 * KIB, 4],
  ] as const) {
    const { transport, streams } = await stuckClient(2, { maxPending: 1024 * KIB });
    transport.pendingBytes = 1024 * KIB;
    for (const stream of streams) stream.write(Buffer.alloc(200 * KIB));
    transport.pathRoom = pathRoom;
    transport.take();
    assert.equal(Math.ceil(((transport.frames()[0]?.length ?? 0) + 12) / RECORD), records);
  }
});

test("thousands of answers that wait share buffers, in their order: one that nobody reads costs the bytes of its frame", async () => {
  const { transport } = await stuckClient(0);
  transport.pendingBytes = 1024 * KIB;
  const pings = Array.from({ length: 5_000 }, (_, value) => frame.ping(value));
  transport.receive(...pings.slice(0, 2_500));
  transport.receive(...pings.slice(2_500));
  await turn();
  assert.equal(transport.writes.length, 0);
  transport.take();
  const pongs = transport.frames().filter(({ type }) => type === FrameType.ping);
  assert.deepEqual(
    pongs.map(({ length }) => length),
    Array.from({ length: 5_000 }, (_, value) => value),
  );
  assert.equal(transport.buffersInLast, 4 + (5_000 % 1_024), "four full ones, and what came behind them");
});

test("the heads of streams that are opened between answers stay where they were put", async () => {
  const { session, transport } = await stuckClient(0);
  transport.pendingBytes = 1024 * KIB;
  const expected: string[] = [];
  for (let round = 0; round < 2_500; round++) {
    transport.receive(frame.ping(round));
    expected.push(`ping ${round}`);
    if (round % 3 > 0) continue;
    const stream = session.open(Buffer.from(`head ${round}`)).on("error", () => {});
    expected.push(`open ${stream.id} head ${round}`);
  }
  await turn();
  transport.take();
  const sent = transport.frames().flatMap(({ type, flags, id, length, payload }) => {
    if (type === FrameType.ping) return [`ping ${length}`];
    return (flags & Flag.syn) !== 0 ? [`open ${id} ${payload}`] : [];
  });
  assert.deepEqual(sent, expected);
});
