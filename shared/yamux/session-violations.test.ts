import assert from "node:assert/strict";
import { test } from "node:test";
import type { SessionOptions } from "./bounds.ts";
import type { SessionRole } from "./session.ts";
import type { Stream } from "./stream.ts";
import { frame, handHeld, turn } from "./testing/sessions.ts";

interface Violation {
  readonly name: string;
  readonly bytes: readonly Buffer[];
  readonly message: RegExp;
  /** Ours; the peer has the other one. Absent: server. */
  readonly role?: SessionRole;
  readonly options?: Partial<SessionOptions>;
}

const SMALL = { initialWindow: 100, maxWindow: 1000 };
const BIG = 0xffff_ffff;

/** Each after one stream that we have opened. */
const VIOLATIONS: readonly Violation[] = [
  { name: "an unknown version", bytes: [Buffer.alloc(12, 1)], message: /version 1/ },
  { name: "frame type 9", bytes: [Buffer.from("000900000000000000000000", "hex")], message: /type 9/ },
  { name: "a server that opens an odd stream", role: "client", bytes: [frame.syn(3)], message: /parity/ },
  { name: "a client that opens an even stream", bytes: [frame.syn(2)], message: /parity/ },
  { name: "a SYN for stream 0", bytes: [frame.syn(0)], message: /the session itself/ },
  { name: "data for stream 0", role: "client", bytes: [frame.data(0, "x")], message: /stream 0/ },
  { name: "a second SYN", bytes: [frame.syn(1), frame.syn(1)], message: /used before/ },
  { name: "the id of an ended stream", bytes: [frame.syn(1), frame.rst(1), frame.syn(1)], message: /used before/ },
  { name: "ids that jump far ahead", bytes: [frame.syn(0x7fff_ffff)], message: /skips too many/ },
  { name: "data for a stream nobody opened", bytes: [frame.data(7, "x")], message: /never opened/ },
  { name: "credit for a stream that we did not open", bytes: [frame.windowUpdate(4, 1)], message: /never opened/ },
  { name: "an ACK for a stream not opened yet", role: "client", bytes: [frame.ack(3)], message: /never opened/ },
  {
    name: "data beyond the window",
    options: SMALL,
    message: /101 bytes is beyond the window/,
    bytes: [frame.syn(1), frame.data(1, Buffer.alloc(101))],
  },
  {
    name: "data beyond the window over two frames",
    options: SMALL,
    message: /41 bytes is beyond/,
    bytes: [frame.syn(1), frame.data(1, Buffer.alloc(60)), frame.dataHeader(1, 41)],
  },
  { name: "a claim of 4 GiB", bytes: [frame.syn(1), frame.dataHeader(1, BIG)], message: /4294967295 bytes is beyond/ },
  {
    name: "a claim of 4 GiB with the SYN",
    bytes: [frame.dataHeader(1, BIG, 1)],
    message: /4294967295 bytes is beyond/,
  },
  {
    name: "a claim of 4 GiB for an ended stream",
    bytes: [frame.syn(1), frame.rst(1), frame.dataHeader(1, BIG)],
    message: /more data came for streams that have ended than was under way/,
  },
  {
    name: "a claim of 4 GiB behind a FIN",
    bytes: [frame.syn(1), frame.fin(1), frame.dataHeader(1, BIG)],
    message: /4294967295 bytes is beyond/,
  },
  { name: "a window past 2^32", bytes: [frame.syn(1), frame.windowUpdate(1, BIG)], message: /would pass 2\^32/ },
  {
    name: "a window past 2^32 in steps",
    role: "client",
    message: /would pass 2\^32/,
    bytes: [frame.windowUpdate(1, 0x8000_0000), frame.windowUpdate(1, 0x8000_0000)],
  },
];

for (const { name, role = "server", bytes, message, options = {} } of VIOLATIONS) {
  test(`${name} ends the session with go-away(protocol), sent before the transport ends`, async () => {
    const { session, transport, closed } = await handHeld(role, options);
    session.open().on("error", () => {});
    await turn();
    transport.frames();
    const before = process.memoryUsage().arrayBuffers;
    transport.receive(...bytes);
    assert.ok(process.memoryUsage().arrayBuffers - before < 1024 * 1024, "nothing is allocated by a claim");
    assert.equal(session.closed, true, "the session has ended"); // or `closed` would be waited for without end
    const reason = (await closed) as Error & { reason: string };
    assert.equal(reason.reason, "protocol");
    assert.match(reason.message, message);
    const last = transport.frames().at(-1);
    assert.deepEqual([last?.type, last?.length], [3, 1]);
    assert.equal(transport.ended, true);
    assert.equal(session.streamCount, 0);
    transport.close();
  });
}

test("data behind a FIN resets that stream alone", async () => {
  const { session, transport, accepted } = await handHeld("server");
  transport.receive(frame.syn(1), frame.syn(3), frame.fin(1), frame.data(1, "late"), frame.data(3, "fine"));
  await turn();
  assert.equal(session.closed, false);
  assert.equal(accepted[0]?.destroyed, true);
  assert.equal(String(accepted[1]?.read()), "fine");
  assert.deepEqual(
    transport.frames().map((sent) => [sent.id, sent.flags]),
    [[1, 8]],
  );
});

test("an empty frame behind a FIN, a second FIN and a FIN with the SYN do no harm", async () => {
  const { session, transport, accepted } = await handHeld("server");
  transport.receive(frame.syn(1), frame.fin(1), frame.fin(1), frame.dataHeader(1, 0), frame.windowUpdate(3, 0, 5));
  assert.equal(session.closed, false);
  assert.deepEqual(
    accepted.map((stream) => stream.destroyed),
    [false, false],
  );
});

test("frames for a stream that has ended here are ignored: they were under way", async () => {
  const { session, transport } = await handHeld("client");
  session.open().destroy();
  transport.receive(frame.ack(1), frame.data(1, "late"), frame.windowUpdate(1, 10), frame.fin(1), frame.rst(1));
  await turn();
  assert.equal(session.closed, false);
  assert.equal(session.pendingOpens, 0);
});

test("payload of a stream that is destroyed in mid-frame is passed over, and the next frame is read", async () => {
  const { session, transport, accepted } = await handHeld("server");
  transport.receive(frame.syn(1), frame.dataHeader(1, 10), Buffer.from("abc"));
  accepted[0]?.destroy();
  transport.receive(Buffer.from("defghij"), frame.syn(3), frame.data(3, "next"));
  assert.equal(String(accepted[1]?.read()), "next");
  assert.equal(session.bufferedBytes, 0);
});

test("RST on a data frame takes effect behind its payload, FIN as well", async () => {
  const { transport, accepted } = await handHeld("server");
  transport.receive(frame.syn(1), frame.data(1, "last words", 4), frame.syn(3), frame.data(3, "lost", 8));
  const [ended, reset] = accepted as [Stream, Stream];
  assert.equal((ended.read() as Buffer).toString(), "last words");
  await turn();
  assert.equal(ended.readableEnded, true);
  assert.equal((reset.errored as NodeJS.ErrnoException).code, "ECONNRESET");
});

test("a listener that ends the session in mid-chunk gets no more of that chunk", async () => {
  const { session, transport, accepted, goAways } = await handHeld("server");
  transport.receive(frame.syn(1));
  accepted[0]?.on("data", () => session.destroy(new Error("enough")));
  await turn();
  transport.receive(frame.data(1, "x"), frame.syn(3), frame.goAway(0), Buffer.alloc(12, 0xff));
  assert.equal(accepted.length, 1);
  assert.deepEqual(goAways, []);
  assert.equal(transport.destroyedWith?.reason?.message, "enough");
});

test("an error of our own that a listener throws is not blamed on the peer", async () => {
  const { session, transport, accepted } = await handHeld("server", { maxStreamIds: 0 });
  transport.receive(frame.syn(1));
  accepted[0]?.on("data", () => session.open());
  await turn();
  assert.throws(() => transport.receive(frame.data(1, "x")), { reason: "exhausted" });
  assert.equal(session.closed, false);
});

test("a pipe that ends inside a frame is no clean end; between frames it is", async () => {
  const reasonAfter = async (...bytes: readonly Buffer[]): Promise<string | undefined> => {
    const { session, transport, closed } = await handHeld("server");
    transport.receive(...bytes);
    transport.close();
    assert.equal(session.closed, true);
    return (await closed)?.message;
  };
  assert.match((await reasonAfter(frame.syn(1).subarray(0, 5))) ?? "", /inside a frame/);
  assert.match((await reasonAfter(frame.syn(1), frame.dataHeader(1, 5), Buffer.from("abc"))) ?? "", /inside a frame/);
  assert.equal(await reasonAfter(frame.syn(1)), undefined);
});
