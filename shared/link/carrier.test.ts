import assert from "node:assert/strict";
import { createHash, randomBytes } from "node:crypto";
import { once } from "node:events";
import { describe, test } from "node:test";
import type { TLSSocket } from "node:tls";
import { bytesIn } from "../basics/bytes.ts";
import { until } from "../basics/testing/wait.ts";
import { TurnQueue } from "../basics/timers.ts";
import { PacedClose } from "../listen/paced-close.ts";
import { collectGarbage } from "../node/engine.ts";
import { CloseCode, LinkRefused } from "../wire/handshake.ts";
import type { Link } from "./link.ts";
import { dial, HELLO, Inbox, LinkServer, linkPair, Relay, rawClient, welcome } from "./testing/ends.ts";
import { frame, textFrame } from "./testing/frames.ts";

const KEY = Buffer.from([9, 8, 7, 6]);
const MIB = 1024 * 1024;
/** Of a yamux frame. */
const HEADER_BYTES = 12;
/** Of TLS. */
const RECORD = 16 * 1024;

/** Writes all of it as a session does: batches, and never more than 256 KiB waiting. */
function send(link: Link, inbox: Inbox, chunks: Buffer[]): Promise<number> {
  let most = 0;
  return new Promise((resolve) => {
    const more = (): void => {
      while (chunks.length > 0 && link.pendingBytes < 256 * 1024) {
        const batch = chunks.splice(0, 3);
        link.write(batch, bytesIn(batch));
        most = Math.max(most, link.pendingBytes);
      }
      if (chunks.length === 0 && link.pendingBytes === 0) resolve(most);
    };
    inbox.writable = more;
    more();
  });
}

test("64 MiB each way arrive whole, with control messages in between", async () => {
  await using server = await LinkServer.start();
  const { link: near } = await dial(server.port);
  const far = await server.link();
  const inboxes = [new Inbox(false), new Inbox(false)] as const;
  near.start(inboxes[0]);
  far.start(inboxes[1]);
  let drains = 0;
  far.watch({ onControl: () => drains++ });
  const block = randomBytes(MIB);
  const chunks = () =>
    Array.from({ length: 64 * 33 }, (_, index) => block.subarray(index, index + (64 * MIB) / (64 * 33)));
  const expected = createHash("sha256");
  for (const chunk of chunks()) expected.update(chunk);
  const wanted = expected.digest("hex");
  const total = bytesIn(chunks());
  // A pong comes back for each ping: a second of all these must stay under what a peer may say.
  const controls = setInterval(() => {
    near.sendControl({ type: "drain", retryAfterMs: 1 });
    far.sendControl({ type: "ping" });
  }, 50).unref();
  await Promise.all([send(near, inboxes[0], chunks()), send(far, inboxes[1], chunks())]);
  await until(() => inboxes[0].bytes >= total && inboxes[1].bytes >= total);
  clearInterval(controls);
  assert.deepEqual(
    inboxes.map(({ bytes, hash }) => [bytes, hash.digest("hex")]),
    [
      [total, wanted],
      [total, wanted],
    ],
  );
  assert.ok(drains > 0);
});

test("ws listens to the socket's data exactly once, and the carrier takes that place", async () => {
  await using server = await LinkServer.start();
  let before: unknown[] = [];
  server.beforeAccept = (_ws, socket) => {
    before = socket.listeners("data");
  };
  const { near, farInbox } = await linkPair(server);
  const socket = server.upgraded[0] as TLSSocket;
  assert.equal(before.length, 1);
  assert.equal(socket.listenerCount("data"), 1);
  assert.notEqual(socket.listeners("data")[0], before[0]);
  near.write([Buffer.from("by the lane")], 11);
  await until(() => farInbox.text === "by the lane");
});

test("with another listener on the socket the carrier lets ws deliver, and works all the same", async () => {
  await using server = await LinkServer.start();
  server.beforeAccept = (_ws, socket) => socket.on("data", () => {});
  const { near, nearInbox, far, farInbox } = await linkPair(server);
  const payload = randomBytes(300_000);
  await send(near, nearInbox, [
    payload.subarray(0, 40_000),
    payload.subarray(40_000, 40_001),
    payload.subarray(40_001, 90_000),
  ]);
  far.write([payload.subarray(0, 50)], 50);
  await until(() => farInbox.bytes === 90_000 && nearInbox.bytes === 50);
  assert.ok(Buffer.concat(farInbox.pieces).equals(payload.subarray(0, 90_000)));
  near.end();
  assert.equal(await farInbox.closed, undefined);
});

test("a batch of frames that end with records arrives in as many pieces as there are records, from either end", async () => {
  await using server = await LinkServer.start();
  for (const from of ["near", "far"] as const) {
    // A pair of its own: an ack of what came from the other end would go in front.
    const { near, nearInbox, far, farInbox } = await linkPair(server);
    const [link, inbox] = from === "near" ? [near, farInbox] : [far, nearInbox];
    const batch: Buffer[] = [];
    let byteLength = 0;
    for (const most of [64, 32, 32, 20, 64, 64].map((kib) => kib * 1024)) {
      const payload = link.wholeRecords(byteLength + HEADER_BYTES, most);
      batch.push(Buffer.alloc(HEADER_BYTES, 1), Buffer.alloc(payload, 2));
      byteLength += HEADER_BYTES + payload;
    }
    link.write(batch, byteLength);
    await until(() => inbox.bytes === byteLength);
    assert.equal(Math.ceil(byteLength / RECORD), 4 + 2 + 2 + 1 + 3 + 4, "none is shorter than it has to be");
    assert.equal(inbox.pieces.length, Math.ceil(byteLength / RECORD));
  }
});

test("what a peer does not read waits within bounds, and onWritable says when there is room", async () => {
  await using server = await LinkServer.start();
  const { near, nearInbox, far, farInbox } = await linkPair(server);
  const socket = server.upgraded[0] as TLSSocket;
  socket.pause();
  const chunk = Buffer.alloc(32 * 1024, 1);
  let sent = 0;
  const fill = (): void => {
    while (near.pendingBytes < 256 * 1024) {
      near.write([chunk], chunk.length);
      sent += chunk.length;
    }
  };
  nearInbox.writable = fill;
  fill();
  // The kernel's buffers are full when nothing has moved for a while.
  let last = -1;
  await until(() => {
    const still = sent === last;
    last = sent;
    return still && sent > 256 * 1024;
  });
  assert.ok(near.pendingBytes >= 256 * 1024 && near.pendingBytes < 320 * 1024);
  nearInbox.writable = () => {};
  socket.resume();
  await until(() => near.pendingBytes === 0 && farInbox.bytes === sent);
  far.destroy();
});

test("end() delivers all that was written before, both ways, and both ends close cleanly", async () => {
  await using server = await LinkServer.start();
  const { near, nearInbox, far, farInbox } = await linkPair(server);
  const up = Array.from({ length: 200 }, () => randomBytes(32 * 1024));
  const down = Array.from({ length: 100 }, () => randomBytes(32 * 1024));
  for (const chunk of down) far.write([chunk], chunk.length);
  for (const chunk of up) near.write([chunk], chunk.length);
  near.end();
  assert.deepEqual([await farInbox.closed, await nearInbox.closed], [undefined, undefined]);
  assert.ok(Buffer.concat(farInbox.pieces).equals(Buffer.concat(up)));
  assert.ok(Buffer.concat(nearInbox.pieces).equals(Buffer.concat(down)));
  assert.deepEqual([near.pendingBytes, far.pendingBytes, nearInbox.closedCount, farInbox.closedCount], [0, 0, 1, 1]);
  assert.deepEqual([nearInbox.late, farInbox.late], [0, 0]);
  await until(() => server.sockets.size === 0);
});

test("both ends may end at the same time", async () => {
  await using server = await LinkServer.start();
  const { near, nearInbox, far, farInbox } = await linkPair(server);
  near.write([Buffer.from("up")], 2);
  far.write([Buffer.from("down")], 4);
  near.end();
  far.end();
  assert.deepEqual([await nearInbox.closed, await farInbox.closed], [undefined, undefined]);
  assert.deepEqual([nearInbox.text, farInbox.text], ["down", "up"]);
});

test("a close code of ours reaches the other end with its reason, after the payload", async () => {
  await using server = await LinkServer.start();
  const { nearInbox, far } = await linkPair(server);
  far.write([Buffer.from("last words")], 10);
  (await server.carrier()).close(CloseCode.limited, "the cluster has 100 agents already");
  const reason = await nearInbox.closed;
  assert.ok(reason instanceof LinkRefused);
  assert.deepEqual([reason.closeCode, reason.reason], [4429, "the cluster has 100 agents already"]);
  assert.equal(nearInbox.text, "last words");
});

test("destroy() ends at once with its reason, closes at the peer, and leaves nothing pending", async () => {
  await using server = await LinkServer.start();
  const { near, nearInbox, far, farInbox } = await linkPair(server);
  (server.upgraded[0] as TLSSocket).pause();
  for (let index = 0; index < 300; index++) near.write([Buffer.alloc(32 * 1024)], 32 * 1024);
  assert.ok(near.pendingBytes > 0);
  near.destroy(new Error("no longer wanted"));
  assert.equal((await nearInbox.closed)?.message, "no longer wanted");
  await until(() => near.pendingBytes === 0);
  (server.upgraded[0] as TLSSocket).resume();
  assert.match(
    (await farInbox.closed)?.message ?? "",
    /^the peer closed with 4457: no longer wanted$|^the connection was cut/,
  );
  near.write([Buffer.alloc(10)], 10);
  far.write([Buffer.alloc(10)], 10);
  assert.deepEqual([near.pendingBytes, far.pendingBytes], [0, 0]);
  near.end();
  near.destroy();
  assert.deepEqual([nearInbox.closedCount, farInbox.closedCount, nearInbox.late, farInbox.late], [1, 1, 0, 0]);
});

test("a reset connection is named", async () => {
  await using server = await LinkServer.start();
  const { near, nearInbox } = await linkPair(server);
  for (const socket of server.sockets) socket.resetAndDestroy();
  assert.match((await nearInbox.closed)?.message ?? "", /^the connection was cut: .* reset it \(ECONNRESET\)$/);
  assert.equal(near.pendingBytes, 0);
});

/** As when thousands come or go at once: nobody's turn is now. */
class Rush extends TurnQueue {
  override run(job: () => void): void {
    setImmediate(job);
  }
}

test("a carrier is over when it is cut, though its socket keeps its place and closes later", async () => {
  const pacedClose = new PacedClose(new Rush(), 0);
  await using server = await LinkServer.start();
  await using relay = await Relay.start(server.port);
  server.beforeAccept = (_ws, socket) => pacedClose.watch(socket.on("error", () => {}));
  const { farInbox } = await linkPair(server, relay.port);
  const [socket] = server.upgraded as [TLSSocket];
  for (const side of relay.sockets) side.resetAndDestroy();
  assert.match((await farInbox.closed)?.message ?? "", /^the connection was cut: .* reset it \(ECONNRESET\)$/);
  assert.deepEqual([socket.destroyed, socket.closed, pacedClose.held], [true, false, 1]);
  pacedClose.end();
  await until(() => socket.closed);
  assert.deepEqual([farInbox.closedCount, farInbox.late], [1, 0]);
});

test("a close frame before a cut counts, and the socket keeps no place", async () => {
  const pacedClose = new PacedClose(new Rush(), 0);
  await using server = await LinkServer.start();
  server.beforeAccept = (_ws, socket) => pacedClose.watch(socket.on("error", () => {}));
  const { near, farInbox } = await linkPair(server);
  const [socket] = server.upgraded as [TLSSocket];
  near.end();
  await until(() => socket.writableEnded);
  socket.destroy(Object.assign(new Error("read ECONNRESET"), { syscall: "read" }));
  assert.equal(await farInbox.closed, undefined);
  assert.equal(pacedClose.held, 0);
});

test("what comes behind a hello is read behind it, however long that waits for its turn", async () => {
  await using server = await LinkServer.start({ turns: new Rush() });
  const other = { ...HELLO, agentId: "another" };
  await rawClient(
    server.port,
    Buffer.concat([{ type: "ping" } as const, HELLO, other].map((each) => textFrame(each, KEY))),
  );
  await server.link();
  const first = server.results[0];
  assert.equal(first?.status === "fulfilled" && first.value.hello.agentId, HELLO.agentId);

  const many = Array.from({ length: 20 }, () => textFrame({ type: "ping" }, KEY));
  await rawClient(server.port, Buffer.concat([...many, textFrame(HELLO, KEY)]));
  assert.match((await server.refusal(1)).message, /too many messages/);
});

test("of what comes without end while a hello waits for its turn nothing is kept", async () => {
  class Never extends TurnQueue {
    override run(): void {}
  }
  await using server = await LinkServer.start({ turns: new Never() });
  const flood = Buffer.concat(
    Array.from({ length: 500_000 }, () => frame({ opcode: 1, payload: KEY.subarray(0, 1), mask: KEY })),
  );
  const socket = await rawClient(server.port, Buffer.alloc(0));
  collectGarbage();
  const before = process.memoryUsage().heapUsed;
  socket.write(flood);
  await until(() => (server.upgraded[0]?.bytesRead ?? 0) >= flood.length || socket.destroyed);
  collectGarbage();
  const grown = process.memoryUsage().heapUsed - before;
  assert.ok(grown < 10 * MIB, `${Math.round(grown / MIB)} MiB more`);
  socket.destroy();
});

test("a message goes out in one write with the payload behind it in the same tick, alone at its end, and a close behind all", async () => {
  await using server = await LinkServer.start();
  const { link: near } = await dial(server.port);
  const far = await server.link();
  const inbox = new Inbox();
  const heard: string[] = [];
  near.watch({ onControl: ({ type }) => heard.push(`${type} after ${inbox.bytes}`) });
  near.start(inbox);
  far.start(new Inbox());
  const [socket] = server.upgraded as [TLSSocket];
  await until(() => socket.writableLength === 0);
  let writes = 0;
  const { _writev, _write } = socket;
  socket._writev = function (...given) {
    writes++;
    return _writev?.apply(this, given);
  };
  socket._write = function (...given) {
    writes++;
    return _write.apply(this, given);
  };
  const message = { type: "drain", retryAfterMs: 1 } as const;
  far.sendControl(message);
  far.sendControl(message);
  assert.equal(writes, 0);
  far.write([Buffer.from("payload")], 7);
  assert.equal(writes, 1, "little payload");
  await until(() => socket.writableLength === 0);
  far.sendControl(message);
  far.write([Buffer.alloc(40_000), Buffer.alloc(40_000)], 80_000);
  assert.equal(writes, 2, "much payload");
  await until(() => socket.writableLength === 0);
  far.sendControl(message);
  await new Promise<void>((resolve) => process.nextTick(resolve));
  assert.equal(writes, 3, "no payload");
  far.sendControl(message);
  far.end();
  await inbox.closed;
  const after = (bytes: number) => `drain after ${bytes}`;
  assert.deepEqual(heard, [after(0), after(0), after(7), after(80_007), after(80_007)]);
});

test("payload that a paused socket still holds when it closes is payload, not frames for ws", async () => {
  await using server = await LinkServer.start();
  const { near, farInbox } = await linkPair(server);
  const socket = server.upgraded[0] as TLSSocket;
  // To ws these bytes would be a text message that ends the carrier.
  const trap = textFrame({ type: "hello" }, KEY);
  const message = Buffer.concat([Buffer.alloc(40_000, 1), trap]);
  near.write([message.subarray(0, 20_000), message.subarray(20_000)], message.length);
  socket.once("data", () => socket.pause());
  await until(() => farInbox.bytes > 0 && socket.readableLength > 0);
  await until(() => farInbox.bytes + socket.readableLength >= 16 * 1024 + farInbox.bytes);
  const held = socket.readableLength;
  const before = farInbox.bytes;
  socket.destroy();
  assert.match((await farInbox.closed)?.message ?? "", /^the connection was cut/);
  assert.equal(farInbox.bytes, before + held);
});

describe("what takes its time", { concurrency: true }, () => {
  test("end() on a path that is slow for longer than the closing timeout still delivers", async () => {
    await using server = await LinkServer.start();
    const { near, farInbox } = await linkPair(server);
    const socket = server.upgraded[0] as TLSSocket;
    socket.pause();
    const chunks = Array.from({ length: 400 }, () => Buffer.alloc(32 * 1024, 5));
    for (const chunk of chunks) near.write([chunk], chunk.length);
    near.end();
    setTimeout(() => socket.resume(), 2_300);
    assert.equal(await farInbox.closed, undefined);
    assert.equal(farInbox.bytes, 400 * 32 * 1024);
  });

  test("a peer that falls silent is noticed at both ends, when its silence has lasted for 2.5 intervals", async () => {
    const keepaliveMs = 200;
    await using server = await LinkServer.start({ keepaliveMs, welcome: () => welcome({ keepaliveMs }) });
    await using relay = await Relay.start(server.port);
    const { nearInbox, farInbox } = await linkPair(server, relay.port, { keepaliveMs });
    await new Promise((resolve) => setTimeout(resolve, 3 * keepaliveMs));
    assert.deepEqual([nearInbox.closedCount, farInbox.closedCount], [0, 0], "pings keep an idle link alive");
    relay.silence();
    const since = performance.now();
    for (const reason of await Promise.all([nearInbox.closed, farInbox.closed])) {
      assert.match(reason?.message ?? "", /^nothing was received for (?!0\.[0-4])\d+\.\d s$/);
    }
    // Up to one interval lies between the last byte received and the silence.
    const tookMs = performance.now() - since;
    assert.ok(tookMs > 1.2 * keepaliveMs && tookMs < 50 * keepaliveMs, `${tookMs}`);
  });

  test("the smaller keepalive of both ends is used", async () => {
    await using server = await LinkServer.start();
    await using relay = await Relay.start(server.port);
    const { nearInbox } = await linkPair(server, relay.port, { keepaliveMs: 100 });
    await new Promise((resolve) => setTimeout(resolve, 350));
    assert.equal(nearInbox.closedCount, 0, "answers to its pings keep the link alive");
    relay.silence();
    assert.match((await nearInbox.closed)?.message ?? "", /^nothing was received for/);
  });

  test("a peer that never answers our close frame is cut after two seconds", async () => {
    await using server = await LinkServer.start();
    const socket = await rawClient(server.port, textFrame(HELLO, KEY));
    const closed = once(socket.resume(), "close");
    const far = await server.carrier();
    const since = performance.now();
    far.close(CloseCode.forbidden, "go away");
    await closed;
    const tookMs = performance.now() - since;
    assert.ok(tookMs > 1_900 && tookMs < 15_000, `${tookMs}`);
  });
});
