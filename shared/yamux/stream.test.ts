import assert from "node:assert/strict";
import { once } from "node:events";
import { Duplex } from "node:stream";
import { test } from "node:test";
import { until } from "../basics/testing/wait.ts";
import { Flag, FrameType, header, MAX_UINT32 } from "./frame.ts";
import type { Stream } from "./stream.ts";
import { frame, handHeld, openStream, pair, readAll, turn } from "./testing/sessions.ts";

test("the opener ends its side and still reads a long answer, and the other way round", async () => {
  for (const who of ["opener", "accepter"] as const) {
    const ends = pair({ initialWindow: 4096, maxWindow: 4096 });
    const [near, far] = await openStream(ends);
    const [first, second] = who === "opener" ? [near, far] : [far, near];
    first.end("question");
    assert.equal((await readAll(second)).toString(), "question");
    const answer = Buffer.alloc(300_000, "answer");
    second.end(answer);
    assert.ok((await readAll(first)).equals(answer));
    await until(() => ends.client.session.streamCount === 0 && ends.server.session.streamCount === 0);
    await until(() => near.destroyed && far.destroyed);
    assert.equal(near.errored ?? far.errored, null);
  }
});

test("an end without data is seen as an end", async () => {
  const [near, far] = await openStream(pair());
  near.end();
  far.end();
  assert.equal((await readAll(near)).length + (await readAll(far)).length, 0);
});

test("writes of zero bytes call back, send no frame, and need no window", async () => {
  const { session, transport } = await handHeld("client", { initialWindow: 10 });
  const stream = session.open();
  const write = (bytes: string) => new Promise((resolve) => stream.write(bytes, resolve));
  assert.equal(await write(""), null);
  assert.equal(await write("0123456789"), null);
  assert.equal(await write(""), null);
  stream.cork();
  const both = [write(""), write("")];
  stream.uncork();
  assert.deepEqual(await Promise.all(both), [null, null]);
  stream.end();
  await once(stream, "finish");
  await turn();
  const [syn, data, fin] = transport.frames();
  assert.deepEqual([syn?.flags, data?.length, fin?.flags], [1, 10, 4]);
});

test("an empty chunk between others loses nothing", async () => {
  const [near, far] = await openStream(pair({ initialWindow: 4, maxWindow: 4 }));
  near.cork();
  for (const part of ["abcd", "", "ef", "", ""]) near.write(part);
  near.uncork();
  near.end();
  assert.equal((await readAll(far)).toString(), "abcdef");
});

test("destroying a stream whose write is held back calls the write back and resets the peer", async () => {
  const { session, transport } = await handHeld("client", { initialWindow: 10 });
  const stream = session.open();
  const settled = new Promise<Error | null | undefined>((resolve) => stream.write("more than the window", resolve));
  await turn();
  transport.frames();
  let failed = false;
  stream.on("error", () => {
    failed = true;
  });
  stream.destroy();
  assert.ok((await settled) instanceof Error);
  await turn();
  assert.equal(failed, false, "its owner wanted it: no error event");
  await turn();
  assert.deepEqual(
    transport.frames().map((sent) => [sent.type, sent.flags, sent.id]),
    [[1, 8, 1]],
  );
  assert.equal(session.streamCount, 0);
});

test("a reset by the peer calls a held write back, and is ECONNRESET", async () => {
  const { session, transport } = await handHeld("client", { initialWindow: 10 });
  const stream = session.open();
  const failed = once(stream, "error");
  const settled = new Promise<Error | null | undefined>((resolve) => stream.write("more than the window", resolve));
  await turn();
  transport.frames();
  transport.receive(frame.rst(1));
  assert.equal(((await failed)[0] as NodeJS.ErrnoException).code, "ECONNRESET");
  assert.equal(((await settled) as NodeJS.ErrnoException).code, "ECONNRESET");
  await turn();
  assert.deepEqual(transport.frames(), [], "a reset is not answered");
});

test("a reset tells the peer its code, which is no credit, and one without a code says nothing", async () => {
  for (const code of [3, 0]) {
    const [near, far] = await openStream(pair());
    for (const stream of [near, far]) stream.on("error", () => {});
    near.reset(undefined, code);
    await until(() => far.destroyed);
    assert.equal(far.resetCode, code);
  }
  const { session, transport } = await handHeld("client");
  const stream = session.open().on("error", () => {});
  transport.receive(header(FrameType.windowUpdate, Flag.rst, 1, MAX_UINT32));
  assert.equal(stream.resetCode, MAX_UINT32, "no violation of the window");
});

test("a reset drops what was not read, and the memory of it", async () => {
  const ends = pair();
  const [near, far] = await openStream(ends);
  near.write("unread");
  await until(() => far.readableLength === 6);
  near.destroy();
  await until(() => far.closed);
  assert.equal(ends.server.session.bufferedBytes, 0);
});

test("a stream that ended both ways sends no reset when it closes by itself", async () => {
  const { session, transport } = await handHeld("client");
  const stream = session.open().resume();
  stream.end("x");
  transport.receive(frame.ack(1), frame.fin(1));
  await once(stream, "close");
  await turn();
  assert.deepEqual(
    transport.frames().map((sent) => sent.flags),
    [1, 0, 4],
  );
});

test("destroying a half-closed stream resets it", async () => {
  const [near, far] = await openStream(pair());
  near.end();
  await once(far.resume(), "end");
  const failed = once(far, "error");
  near.destroy();
  assert.equal(((await failed)[0] as NodeJS.ErrnoException).code, "ECONNRESET");
});

test("bytes put back are read first, and give credit once", async () => {
  const [near, far] = await openStream(pair({ initialWindow: 1000, maxWindow: 1000 }));
  near.end(Buffer.from("head\nrest of it"));
  await once(far, "readable");
  const bytes = far.read() as Buffer;
  far.unshift(bytes.subarray(5));
  assert.equal(far.held, 10);
  assert.equal((await readAll(far)).toString(), "rest of it");
  assert.equal(far.held, 0);
});

test("put back and read again for ever, no more than the window is ever granted", async () => {
  const { session, transport, accepted } = await handHeld("server", { initialWindow: 1000, maxWindow: 1000 });
  transport.receive(frame.syn(1), frame.data(1, Buffer.alloc(1000)));
  const stream = accepted[0] as Stream;
  for (let count = 0; count < 50; count++) stream.unshift(stream.read() as Buffer);
  await turn();
  const credit = transport.frames().filter((sent) => sent.type === 1);
  assert.equal(
    credit.reduce((sum, sent) => sum + sent.length, 0),
    1000,
  );
  assert.equal(session.bufferedBytes, 1000);
  stream.destroy();
  assert.equal(session.bufferedBytes, 0);
});

test("the ACK goes before the first bytes, credit or FIN of the accepting side, once", async () => {
  const acts: Array<(stream: Stream) => void> = [
    (stream) => stream.write("answer"),
    (stream) => stream.end(),
    (stream) => stream.read(),
    (stream) => {
      stream.accept();
      stream.accept();
      stream.write("answer");
    },
  ];
  for (const act of acts) {
    const { transport, accepted } = await handHeld("server", { initialWindow: 4 });
    transport.receive(frame.syn(1), frame.data(1, "four"));
    act(accepted[0] as Stream);
    await turn();
    const frames = transport.frames();
    assert.deepEqual([frames[0]?.type, frames[0]?.flags, frames[0]?.length], [1, 2, 0], `${act}`);
    assert.equal(frames.filter((sent) => (sent.flags & 2) !== 0).length, 1);
    assert.equal(frames.length, 2);
  }
});

test("the opener is notified of the ACK once, and never sends one itself", async () => {
  const { session, transport } = await handHeld("client");
  const stream = session.open();
  let told = 0;
  stream.onAcknowledged = () => told++;
  stream.accept();
  assert.equal(session.pendingOpens, 1);
  transport.receive(frame.ack(1), frame.ack(1));
  assert.deepEqual([told, stream.acknowledged, session.pendingOpens], [1, true, 0]);
  await turn();
  assert.deepEqual(
    transport.frames().map((sent) => sent.flags),
    [1],
  );
});

test("a reader that pauses at each piece and goes on a turn later gives credit for all of them", async () => {
  const ends = pair({ initialWindow: 4_000, maxWindow: 4_000 });
  const [near, far] = await openStream(ends);
  near.write("head");
  await once(far, "readable");
  assert.equal(String(far.read(4)), "head"); // from here on the Duplex has a high-water mark
  let seen = 0;
  far.on("data", (chunk: Buffer) => {
    seen += chunk.length;
    far.pause();
    setImmediate(() => far.resume());
  });
  for (let count = 0; count < 100; count++) near.write(Buffer.alloc(1_000));
  near.end();
  await once(far, "end");
  assert.deepEqual([seen, far.held], [100_000, 0]);
});

test("bytes that Node.js takes from the buffer without a call of read give credit when it asks for more", async () => {
  const { transport, accepted } = await handHeld("server", { initialWindow: 1000, maxWindow: 1000 });
  transport.receive(frame.syn(1), frame.data(1, Buffer.alloc(600)));
  const [stream = assert.fail()] = accepted;
  // As Node.js does from 26.12 on; our own `read` is passed by.
  const take = (): Buffer | null => Duplex.prototype.read.call(stream);
  assert.equal(take()?.length, 600);
  assert.equal(take(), null);
  assert.equal(stream.held, 0);
  await turn();
  assert.deepEqual(
    transport.frames().map((sent) => [sent.type, sent.flags, sent.length]),
    [
      [1, Flag.ack, 0],
      [1, Flag.none, 600],
    ],
  );
});

test("pausing a flowing reader holds the writer at one window, resuming lets it go on", async () => {
  const ends = pair({ initialWindow: 1000, maxWindow: 1000 });
  const [near, far] = await openStream(ends);
  let seen = 0;
  far.on("data", (chunk: Buffer) => {
    seen += chunk.length;
    if (seen === 500) far.pause();
  });
  near.write(Buffer.alloc(500));
  await until(() => far.isPaused());
  near.end(Buffer.alloc(5_000));
  await until(() => far.held === 1000);
  for (let count = 0; count < 5; count++) await turn();
  assert.deepEqual([seen, far.held, ends.server.session.bufferedBytes], [500, 1000, 1000]);
  far.resume();
  await once(far, "end");
  assert.equal(seen, 5_500);
});
