import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { header } from "./frame.ts";
import { Session } from "./session.ts";
import type { Stream } from "./stream.ts";
import { FakeTransport, frame, handHeld, turn } from "./testing/sessions.ts";

const RUNS = process.env["CI"] === "true" ? 2_000 : 150;
const LIMIT = { maxIdleFramesPerSecond: 100 };

/** A stream that the peer has opened and we have reset. */
const ENDED = 1001;
/** A stream that the peer has opened and finished. */
const FINISHED = 1003;

const FLOODS: ReadonlyArray<readonly [name: string, feed: (transport: FakeTransport, round: number) => void]> = [
  ["pings", (transport, round) => transport.receive(frame.ping(round))],
  ["answers to no ping", (transport, round) => transport.receive(frame.pong(round + 1000))],
  ["empty data", (transport) => transport.receive(frame.dataHeader(1, 0))],
  ["empty data with an ACK that says nothing new", (transport) => transport.receive(frame.dataHeader(1, 0, 2))],
  ["empty data with an unknown flag", (transport) => transport.receive(frame.dataHeader(1, 0, 16))],
  ["window updates of 0 with an ACK again", (transport) => transport.receive(frame.ack(1))],
  ["FINs for a stream that has had one", (transport) => transport.receive(frame.fin(FINISHED))],
  ["window updates of 0", (transport) => transport.receive(frame.windowUpdate(1, 0))],
  ["window updates of 1", (transport) => transport.receive(frame.windowUpdate(1, 1))],
  ["window updates for streams that have ended", (transport) => transport.receive(frame.windowUpdate(ENDED, 65_536))],
  ["empty data for streams that have ended", (transport) => transport.receive(frame.dataHeader(ENDED, 0))],
  ["data of a byte for streams that have ended", (transport) => transport.receive(frame.data(ENDED, Buffer.alloc(1)))],
  ["SYN and RST", (transport, round) => transport.receive(frame.syn(3 + 2 * round), frame.rst(3 + 2 * round))],
  ["SYN with RST in one frame", (transport, round) => transport.receive(frame.windowUpdate(3 + 2 * round, 0, 9))],
];

for (const [name, feed] of FLOODS) {
  test(`a flood of ${name} ends the session; as many a second as allowed do not`, async () => {
    let now = 0;
    const { session, transport, accepted, closed } = await handHeld("server", { ...LIMIT, now: () => now });
    transport.receive(frame.syn(1), frame.syn(ENDED), frame.syn(FINISHED), frame.fin(FINISHED));
    accepted[1]?.destroy();
    let round = 0;
    for (let second = 0; second < 3; second++) {
      now = second * 1000;
      for (let count = 0; count < 100; count++) feed(transport, round++);
    }
    assert.equal(session.closed, false, "at the limit");
    feed(transport, round);
    assert.equal(session.closed, true);
    assert.equal(((await closed) as Error & { reason: string }).reason, "flood");
    assert.ok(transport.destroyedWith, "at once: what it sends is not read any more");
    transport.close();
  });
}

test("a stream of keystrokes on each of 100 streams passes, and a flood of payload in single bytes ends the session", async () => {
  let now = 0;
  const { session, transport, accepted, closed } = await handHeld("server", { now: () => now });
  const ids = Array.from({ length: 100 }, (_, index) => 2 * index + 1);
  const keystrokes = ids.map((id) => frame.data(id, "x"));
  transport.receive(...ids.map((id) => frame.syn(id)));
  for (const stream of accepted) stream.resume();
  for (let count = 0; count < 3_000; count++) {
    now += 10;
    transport.receive(...keystrokes);
    if (count % 100 === 0) await turn(); // readers give credit
  }
  assert.equal(session.closed, false, "100 a second on each, for 30 s");
  for (let count = 0; count < 1_001 && !session.closed; count++) {
    transport.receive(...keystrokes);
    if (count % 100 === 0) await turn();
  }
  assert.equal(session.closed, true, "more than 100,000 at once");
  assert.match((await closed)?.message ?? "", /more than 100000 frames a second carry less than 64 bytes/);
  transport.close();
});

test("frames with little payload are free where one session carries many clusters, and so is more payload anywhere", async () => {
  for (const [options, bytes] of [
    [{ littleFrameCost: 0 }, 1],
    [{}, 64],
  ] as const) {
    const { session, transport, accepted } = await handHeld("server", { ...LIMIT, ...options, now: () => 0 });
    transport.receive(frame.syn(1));
    accepted[0]?.resume();
    for (let count = 0; count < 2_000; count++) transport.receive(frame.data(1, Buffer.alloc(bytes)));
    assert.equal(session.closed, false);
    session.destroy();
    transport.close();
  }
});

test("data for a stream that has ended may be as much as was under way, and no more", async () => {
  const { session, transport, accepted, closed } = await handHeld("server", { initialWindow: 65_536 });
  transport.receive(frame.syn(1), frame.data(1, Buffer.alloc(20_000)));
  accepted[0]?.destroy();
  transport.receive(frame.data(1, Buffer.alloc(45_536)));
  assert.equal(session.closed, false, "all of it was under way");
  transport.receive(frame.data(1, Buffer.alloc(1)));
  assert.equal(session.closed, true);
  assert.equal(((await closed) as Error & { reason: string }).reason, "protocol");
  transport.close();
});

test("what was under way to a stream that ended is forgotten after one to two minutes", async () => {
  let now = 0;
  const options = { initialWindow: 65_536, now: () => now };
  const { session, transport, accepted } = await handHeld("server", options);
  transport.receive(frame.syn(1), frame.syn(3));
  accepted[0]?.destroy();
  now = 60_000;
  transport.receive(frame.data(1, Buffer.alloc(30_000)));
  accepted[1]?.destroy();
  assert.equal(session.closed, false);
  now = 120_000;
  transport.receive(frame.data(3, Buffer.alloc(65_536)));
  assert.equal(session.closed, false);
  transport.receive(frame.data(1, Buffer.alloc(1000)));
  assert.equal(session.closed, true);
  transport.close();
});

test("the data behind a SYN that was refused was under way", async () => {
  const { session, transport } = await handHeld("server", { maxStreams: 1 });
  transport.receive(frame.syn(1), frame.syn(3));
  for (let count = 0; count < 4; count++) transport.receive(frame.data(3, Buffer.alloc(65_536)));
  assert.equal(session.closed, false);
  transport.receive(frame.data(3, Buffer.alloc(1000)));
  assert.equal(session.closed, true);
  transport.close();
});

test("SYNs that are refused count as well", async () => {
  const { session, transport } = await handHeld("server", { ...LIMIT, now: () => 0, maxStreams: 1 });
  for (let id = 1; id <= 2 * 101 + 1; id += 2) transport.receive(frame.syn(id));
  assert.equal(session.closed, true);
  transport.close();
});

test("SYNs whose streams the owner resets count as well", async () => {
  const transport = new FakeTransport();
  let refused = 0;
  const onStream = (stream: Stream) => {
    refused++;
    stream.on("error", () => {});
    stream.reset();
  };
  const session = new Session("server", transport, { onStream, onClosed: () => {} }, { ...LIMIT, now: () => 0 });
  await turn();
  for (let count = 1; count <= 101; count++) {
    assert.equal(session.closed, false, "at the limit");
    transport.receive(frame.syn(2 * count - 1));
  }
  assert.equal(session.closed, true);
  assert.equal(refused, 101);
  transport.close();
});

test("the session ends when the peer sends pings and never reads the answers", async () => {
  const { session, transport, closed } = await handHeld("server", { maxIdleFramesPerSecond: 1_000_000 });
  transport.takesAtOnce = false;
  transport.pendingBytes = 1024 * 1024;
  const pings = Buffer.concat(Array.from({ length: 1000 }, (_, value) => frame.ping(value)));
  for (let count = 0; count < 24; count++) transport.receive(pings);
  assert.equal(session.closed, false);
  transport.receive(pings);
  assert.equal(session.closed, true);
  assert.match((await closed)?.message ?? "", /reads no answers/);
  assert.ok(transport.destroyedWith, "not closed cleanly: nothing would get through");
});

test("the transport is destroyed when the peer does not take the last frames in time", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const { transport } = await handHeld("server");
  transport.receive(Buffer.alloc(12, 0xff));
  assert.equal(transport.ended, true);
  assert.equal(transport.destroyedWith, undefined);
  t.mock.timers.tick(10_000);
  assert.ok(transport.destroyedWith);
});

test("a session whose transport has gone leaves no timer behind", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const { transport } = await handHeld("server");
  transport.receive(Buffer.alloc(12, 0xff));
  transport.close();
  t.mock.timers.tick(60_000);
  assert.equal(transport.destroyedWith, undefined);
});

test("whatever bytes come: no crash, no memory, a clean end or none", async () => {
  const uint32 = fc.oneof(fc.nat(9), fc.integer({ min: 0, max: 0xffff_ffff }), fc.constantFrom(0xffff_ffff, 65_536));
  const someFrame = fc
    .tuple(
      fc.constantFrom(0, 0, 1, 1, 2, 3),
      fc.nat(15),
      fc.oneof(fc.nat(12), uint32),
      uint32,
      fc.uint8Array({ maxLength: 30 }),
    )
    .map(([type, flags, id, length, payload]) =>
      type === 0 && length > 30
        ? Buffer.concat([header(0, flags, id, payload.length), payload])
        : header(type, flags, id, length),
    );
  const noise = fc.uint8Array({ maxLength: 60 }).map((bytes) => Buffer.from(bytes));
  const input = fc.array(fc.oneof({ weight: 9, arbitrary: someFrame }, { weight: 1, arbitrary: noise }), {
    maxLength: 60,
  });
  const property = fc.asyncProperty(
    fc.constantFrom("client" as const, "server" as const),
    input,
    async (role, chunks) => {
      const { session, transport, accepted } = await handHeld(role, { budget: 1000, maxStreams: 8 });
      for (let count = 0; count < 3; count++) session.open(Buffer.from("head")).on("error", () => {});
      for (const [at, chunk] of chunks.entries()) {
        transport.receive(chunk);
        if (at % 3 === 0) accepted[at % 7]?.resume();
      }
      await turn();
      const buffered = session.bufferedBytes;
      assert.ok(buffered >= 0 && buffered <= 3000, `${buffered} bytes buffered`);
      assert.ok(session.streamCount <= 8 && session.pendingOpens >= 0 && session.pendingOpens <= 3);
      if (session.closed) assert.ok(transport.ended || transport.destroyedWith);
      session.destroy();
      transport.close();
      assert.deepEqual([session.streamCount, session.pendingOpens], [0, 0]);
      transport.frames();
    },
  );
  await fc.assert(property, { numRuns: RUNS });
});
