import assert from "node:assert/strict";
import { once } from "node:events";
import { duplexPair } from "node:stream";
import { test } from "node:test";
import { until } from "../basics/testing/wait.ts";
import type { Stream } from "./stream.ts";
import { DuplexTransport } from "./testing/duplex-transport.ts";
import { end, frame, handHeld, openStream, pair, readAll, turn } from "./testing/sessions.ts";

test("bytes written at one end of a stream are read at the other, both ways, and the ends are seen", async () => {
  const { client, server } = pair();
  const near = client.session.open(Buffer.from("head"));
  near.end("up");
  await until(() => server.accepted.length === 1);
  const far = server.accepted[0] as Stream;
  far.end("down");
  assert.equal((await readAll(far)).toString(), "headup");
  assert.equal((await readAll(near)).toString(), "down");
  await until(() => client.session.streamCount === 0 && server.session.streamCount === 0);
});

test("credit is given for bytes that were read, not on receipt: a reader that stops holds its writer at one window", async () => {
  const { client, server } = pair({ initialWindow: 65536, maxWindow: 65536 });
  const stuck = client.session.open();
  stuck.on("error", () => {});
  stuck.write(Buffer.alloc(1024 * 1024));
  const lively = client.session.open();
  lively.end("through");
  await until(() => server.accepted.length === 2);
  assert.equal((await readAll(server.accepted[1] as Stream)).toString(), "through");
  assert.equal((server.accepted[0] as Stream).held, 65536);
  assert.equal(server.session.bufferedBytes, 65536);
  stuck.destroy();
  await until(() => server.session.bufferedBytes === 0);
});

test("streams of a session whose transport is lost are destroyed with ESESSION", async () => {
  const { client, server } = pair();
  const near = client.session.open();
  await until(() => server.accepted.length === 1);
  const failed = once(near, "error");
  client.session.destroy(new Error("cut"));
  assert.equal(((await failed)[0] as NodeJS.ErrnoException).code, "ESESSION");
  assert.equal((await client.closed)?.message, "cut");
});

test("a ping measures a round trip and is rejected when the session ends first", async () => {
  const { client, server } = pair();
  assert.ok((await client.session.ping()) >= 0);
  const lost = client.session.ping();
  server.session.destroy();
  client.session.destroy();
  await assert.rejects(lost, { reason: "closed" });
});

test("go-away(normal) is reported once, and open streams live on whichever end sent it", async () => {
  const ends = pair();
  const [near] = await openStream(ends);
  ends.client.session.drain();
  ends.client.session.drain();
  await until(() => ends.server.session.draining);
  assert.deepEqual(ends.server.goAways, [0]);
  assert.throws(() => ends.server.session.open(), { reason: "go_away" });
  assert.throws(() => ends.client.session.open(), { reason: "go_away" });
  near.end("alive");
  assert.equal((await readAll(ends.server.accepted[0] as Stream)).toString(), "alive");
});

test("go-away with an error code is reported to the owner; the session lives until the peer ends the pipe", async () => {
  const { session, transport, goAways, closed } = await handHeld("client");
  const stream = session.open();
  const failed = once(stream, "error");
  transport.receive(frame.goAway(1), frame.goAway(2));
  assert.deepEqual([goAways, session.draining, session.closed], [[1], true, false]);
  transport.close();
  assert.equal(((await failed)[0] as NodeJS.ErrnoException).code, "ESESSION");
  assert.equal(await closed, undefined);
});

test("a stream that the peer opened before it received our go-away is reset", async () => {
  const { session, transport, accepted } = await handHeld("server");
  session.drain();
  transport.receive(frame.syn(1), frame.data(1, "crossed"));
  await turn();
  assert.equal(accepted.length, 0);
  assert.deepEqual(
    transport.frames().map((sent) => [sent.type, sent.flags, sent.id]),
    [
      [3, 0, 0],
      [1, 8, 1],
    ],
  );
});

test("closing waits for the streams, sends the rest, and ends the transport", async () => {
  const ends = pair();
  const [near, far] = await openStream(ends);
  const closing = ends.client.session.close(5_000);
  near.end("bye");
  far.end("bye");
  assert.equal((await readAll(near)).toString() + (await readAll(far)).toString(), "byebye");
  await closing;
  assert.equal(await ends.client.closed, undefined);
  assert.equal(await ends.server.closed, undefined);
  await ends.client.session.close(5_000);
});

test("closing is done when the transport has gone, not before", async () => {
  const { session, transport } = await handHeld("client");
  let done = false;
  const closing = session.close(1_000).then(() => {
    done = true;
  });
  await turn();
  assert.deepEqual([session.closed, transport.ended, done], [true, true, false]);
  transport.close();
  await closing;
});

test("closing gives up at its deadline, the nearest of several; streams are lost then", async () => {
  const ends = pair();
  const [near] = await openStream(ends);
  const patient = ends.client.session.close(60_000);
  await ends.client.session.close(20);
  await patient;
  assert.equal((near.errored as NodeJS.ErrnoException).code, "ESESSION");
  assert.equal(ends.client.session.streamCount, 0);
});

test("closing waits for a peer that takes nothing while bytes may be under way, and half a second if none are", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const table = [
    { what: "no stream for a second", quietMs: 1_000, deadlineMs: 30_000, lingersMs: 500 },
    { what: "a stream a moment ago", quietMs: 999, deadlineMs: 4_000, lingersMs: 4_000 },
    { what: "a long deadline", quietMs: 0, deadlineMs: 30_000, lingersMs: 10_000 },
    { what: "no time at all", quietMs: 0, deadlineMs: 0, lingersMs: 500 },
  ];
  for (const { what, quietMs, deadlineMs, lingersMs } of table) {
    let now = 0;
    const { session, transport } = await handHeld("client", { now: () => now });
    now = 5_000;
    const stream = session.open();
    stream.on("error", () => {});
    stream.destroy();
    now += quietMs;
    void session.close(deadlineMs);
    await turn();
    t.mock.timers.tick(lingersMs - 1);
    assert.equal(transport.destroyedWith, undefined, what);
    t.mock.timers.tick(1);
    assert.notEqual(transport.destroyedWith, undefined, what);
    transport.close();
  }
});

test("bytes that a reader has not taken when the session ends stay readable if their stream was over", async () => {
  const ends = pair();
  const [near, far] = await openStream(ends);
  near.end("the last of it");
  far.end();
  near.resume();
  await until(() => ends.server.session.streamCount === 0);
  ends.server.session.destroy();
  assert.equal((await readAll(far)).toString(), "the last of it");
});

test("the round trip is the least of the last four, and answers to nothing are ignored", async () => {
  let now = 0;
  const { session, transport } = await handHeld("client", { now: () => now });
  const least: number[] = [];
  for (const [at, ms] of [30, 20, 40, 50, 60, 70].entries()) {
    if (at > 0) void session.ping();
    now += ms;
    transport.receive(frame.pong(at + 1), frame.pong(999));
    least.push(session.rttMs);
  }
  assert.deepEqual(least, [30, 20, 20, 20, 20, 40]);
});

test("pings that a peer never answers are bounded", async () => {
  const { session } = await handHeld("client");
  const lost = Array.from({ length: 63 }, () => session.ping());
  await assert.rejects(session.ping(), { reason: "overloaded" });
  session.destroy();
  for (const result of await Promise.allSettled(lost)) assert.equal(result.status, "rejected");
  await assert.rejects(session.ping(), { reason: "closed" });
});

test("an echo over a pipe that answers from inside a write keeps every byte in order", async () => {
  const [left, right] = duplexPair();
  const client = end("client", new DuplexTransport(left));
  const server = end("server", new DuplexTransport(right));
  const near = client.session.open();
  const sent = Buffer.alloc(3_000_000, "in order, whatever calls whom");
  near.end(sent);
  await until(() => server.accepted.length === 1);
  const far = server.accepted[0] as Stream;
  far.pipe(far);
  assert.ok((await readAll(near)).equals(sent));
});
