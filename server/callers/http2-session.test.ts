import assert from "node:assert/strict";
import { once } from "node:events";
import {
  type ClientHttp2Session,
  type ClientHttp2Stream,
  connect,
  constants,
  type IncomingHttpHeaders,
  type Settings,
} from "node:http2";
import { type TestContext, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { deferred } from "../../shared/basics/promises.ts";
import { until } from "../../shared/basics/testing/wait.ts";
import { encodePacket } from "../../shared/konnectivity/packet.ts";
import { connectRequest, FRAME, frame, PREFACE, reset, settings } from "../../shared/node/testing/http2-frames.ts";
import type { OpenAnswer } from "../../shared/wire/stream-head.ts";
import type { Stream } from "../../shared/yamux/stream.ts";
import { fakeAgent } from "../tunnels/testing/fake-agent.ts";
import { start } from "./testing/caller.ts";

const { NGHTTP2_CANCEL, NGHTTP2_CONNECT_ERROR, NGHTTP2_NO_ERROR, NGHTTP2_HTTP_1_1_REQUIRED } = constants;

type World = Awaited<ReturnType<typeof start>>;

const echoing = () => fakeAgent({ onTarget: (stream) => stream.pipe(stream) });

/** A client that speaks HTTP/2 on one connection, until the end of the test. */
function client(world: World, t: TestContext, settings: Settings = {}) {
  const { socket } = world.call();
  socket.removeAllListeners("data");
  const session = connect("http://localhost", { createConnection: () => socket, settings });
  session.on("error", () => {}).setMaxListeners(0);
  t.after(() => session.destroy());
  return { session, socket };
}

function request(session: ClientHttp2Session, authority = "10.0.0.1:10250"): ClientHttp2Stream {
  const stream = session.request({ ":method": "CONNECT", ":authority": authority });
  stream.on("error", () => {});
  return stream;
}

async function answered(stream: ClientHttp2Stream): Promise<IncomingHttpHeaders> {
  const [headers] = await once(stream, "response");
  return headers;
}

async function established(session: ClientHttp2Session): Promise<ClientHttp2Stream> {
  const stream = request(session);
  assert.equal((await answered(stream))[":status"], 200);
  return stream;
}

async function textOf(stream: ClientHttp2Stream): Promise<string> {
  let text = "";
  for await (const piece of stream) text += piece;
  return text;
}

/** A CONNECT, and the stream that has reached its target. */
async function connected(t: TestContext) {
  const targets: Stream[] = [];
  const world = await start([fakeAgent({ onTarget: (stream) => void targets.push(stream.resume()) })]);
  t.after(() => world[Symbol.asyncDispose]());
  const stream = await established(client(world, t).session);
  const target = { stream: targets[0] as Stream, ended: false };
  target.stream.on("error", () => {}).on("end", () => (target.ended = true));
  return { stream, target };
}

test("many CONNECTs share one connection, each with bytes and a half-close of its own", async (t) => {
  await using world = await start([echoing()]);
  const { session } = client(world, t);
  const streams = await Promise.all(Array.from({ length: 20 }, () => established(session)));
  for (const [i, stream] of streams.entries()) stream.end(`message ${i}`);
  const texts = await Promise.all(streams.map(textOf));
  assert.deepEqual(
    texts,
    streams.map((_, i) => `message ${i}`),
  );
  await until(() => world.lines.filter(({ outcome }) => outcome === "ok").length === 20);
});

test("a connection takes as many CONNECTs as its caller has, but a hundred new ones at a time", async (t) => {
  await using world = await start([echoing()]);
  const { session } = client(world, t);
  await once(session, "remoteSettings");
  assert.equal(session.remoteSettings.maxConcurrentStreams, 100);
  await Promise.all(Array.from({ length: 1_000 }, () => established(session)));
  await until(() => session.remoteSettings.maxConcurrentStreams === 1_100);
});

test("a refused CONNECT has status, Proxy-Status and sentence, and the others of its connection go on", async (t) => {
  const answer = (): OpenAnswer => ({ ok: false, error: "dial_refused", detail: "nobody listens" });
  await using world = await start([fakeAgent({ answer })]);
  const { session } = client(world, t);
  for (const [authority, status, sentence] of [
    ["10.0.0.1:10250", 502, /nobody listens/],
    ["10.0.0.1:0", 400, /port/],
  ] as const) {
    const stream = request(session, authority);
    const headers = await answered(stream);
    assert.equal(headers[":status"], status);
    assert.match(String(headers["proxy-status"]), /^culvert; error=/);
    assert.match(await textOf(stream), sentence);
    await until(() => stream.closed);
    assert.equal(stream.rstCode, NGHTTP2_NO_ERROR);
  }
});

test("a refused CONNECT whose caller gives its answer no window ends after ten seconds, and so does a call of gRPC", async (t) => {
  await using world = await start([fakeAgent({ answer: () => ({ ok: false, error: "dial_refused", detail: "" }) })]);
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const { session } = client(world, t, { initialWindowSize: 0 });
  const refused = request(session, "10.0.0.1:0");
  refused.write(UPLOAD);
  const call = session.request({
    ":method": "POST",
    ":path": "/ProxyService/Proxy",
    "content-type": "application/grpc",
  });
  const value = { protocol: "tcp", address: "10.0.0.1:1", random: 1n };
  call.on("error", () => {}).write(encodePacket({ case: "dialRequest", value }));
  await Promise.all([answered(refused), answered(call)]);
  t.mock.timers.tick(9_999);
  await new Promise((answer) => session.ping(answer));
  assert.deepEqual([refused.closed, call.closed], [false, false]);
  t.mock.timers.tick(1);
  t.mock.timers.reset();
  await until(() => refused.closed && call.closed);
  assert.deepEqual([refused.rstCode, call.rstCode], [NGHTTP2_CANCEL, NGHTTP2_CANCEL]);
});

test("a request that is no CONNECT is refused, and its connection goes on", async (t) => {
  await using world = await start([echoing()]);
  const { session } = client(world, t);
  const stream = session.request({ ":method": "GET", ":path": "/" });
  const headers = await answered(stream);
  assert.deepEqual([headers[":status"], headers["allow"]], [405, "CONNECT"]);
  assert.match(await textOf(stream), /only CONNECT is served here/);
  (await established(session)).close();
});

for (const [what, reset] of [
  ["CANCEL", (stream: ClientHttp2Stream) => stream.destroy(new DOMException("", "AbortError"))],
  ["an error", (stream: ClientHttp2Stream) => stream.destroy(new Error())],
  ["no error", (stream: ClientHttp2Stream) => stream.destroy()],
] as const) {
  test(`a caller's reset with ${what} is a failure for the target, and not an end`, async (t) => {
    const { stream, target } = await connected(t);
    reset(stream);
    await until(() => target.stream.closed);
    assert.equal(target.ended, false);
  });
}

test("so is a reset after the target has ended its side", async (t) => {
  const { stream, target } = await connected(t);
  target.stream.end();
  await once(stream.resume(), "end");
  stream.destroy(new Error());
  await until(() => target.stream.closed);
  assert.equal(target.ended, false);
});

test("so is the end of the connection after the target has ended its side", async (t) => {
  const { stream, target } = await connected(t);
  target.stream.end();
  await once(stream.resume(), "end");
  stream.session?.destroy();
  await until(() => target.stream.closed);
  assert.equal(target.ended, false);
});

test("a target's failure resets the stream alone", async (t) => {
  const targets: Stream[] = [];
  await using world = await start([fakeAgent({ onTarget: (stream) => void targets.push(stream) })]);
  const { session } = client(world, t);
  const [stream, other] = [await established(session), await established(session)];
  targets[0]?.destroy(new Error("the target has reset the connection"));
  await until(() => stream.closed);
  assert.equal(stream.rstCode, NGHTTP2_CONNECT_ERROR);
  assert.equal(other.closed, false);
});

test("the end of the connection cancels dials, and resets what is open", async (t) => {
  const dialled = deferred<OpenAnswer>();
  const streams: Stream[] = [];
  const agent = fakeAgent({
    answer: (open) => (open.target.port === 1 ? dialled.promise : { ok: true }),
    onTarget: (stream) => void streams.push(stream.on("error", () => {}).resume()),
  });
  await using world = await start([agent]);
  const { session, socket } = client(world, t);
  await established(session);
  const waiting = request(session, "10.0.0.1:1");
  await until(() => agent.streams.length === 2);
  socket.destroy();
  await until(() => world.lines.filter(({ outcome }) => outcome !== undefined).length === 2);
  assert.deepEqual(world.lines.map(({ outcome }) => outcome).sort(), ["caller_gone", "ok"]);
  await until(() => agent.streams.every(({ destroyed }) => destroyed));
  assert.ok(waiting.destroyed);
});

test("a caller that half-closes before its answer has left", async (t) => {
  const agent = fakeAgent({ answer: () => new Promise(() => {}) });
  await using world = await start([agent]);
  const { session } = client(world, t);
  const stream = request(session);
  await until(() => agent.streams.length === 1);
  stream.end();
  await until(() => world.lines.some(({ outcome }) => outcome === "caller_gone"));
  await until(() => stream.closed);
});

test("a stream that nobody reads holds up itself alone", async (t) => {
  const targets: Stream[] = [];
  const agent = fakeAgent({
    onTarget: (stream, { target }) => {
      if (target.port === 1) targets.push(stream);
      else stream.pipe(stream);
    },
  });
  await using world = await start([agent]);
  const { session } = client(world, t);
  const stuck = request(session, "10.0.0.1:1");
  await answered(stuck);
  const piece = Buffer.alloc(64 * 1024);
  for (let sent = 0; sent < 8 * 1024 * 1024; sent += piece.length) stuck.write(piece);
  const other = await established(session);
  other.end(Buffer.alloc(2 * 1024 * 1024, "x"));
  assert.equal((await textOf(other)).length, 2 * 1024 * 1024);
  assert.ok(stuck.writableLength > 4 * 1024 * 1024, "most of what nobody reads is still at the caller");
});

/** More than a stream and all buffers behind it take. */
const UPLOAD = Buffer.alloc(1024 * 1024);
/** A window of the stream, and more than what waits in the tunnel's sending side. */
const WHOLE_WINDOW = 256 * 1024 + 32 * 1024;

/** nghttp2 gives a window back by halves, so at least one half is held; and what waits in the tunnel's sending side. */
const HALF_A_WINDOW = 128 * 1024 + 32 * 1024;

test("what a stream holds that nobody reads is counted for its cluster, and not any more when it has ended", async (t) => {
  await using world = await start([fakeAgent()]);
  const stuck = await established(client(world, t).session);
  stuck.write(UPLOAD);
  await until(() => world.cluster.memory.held > HALF_A_WINDOW);
  stuck.destroy(new Error());
  await until(() => world.cluster.memory.held === 0);
});

test("so is what comes before the answer", async (t) => {
  const dialled = deferred<OpenAnswer>();
  const agent = fakeAgent({ answer: () => dialled.promise, onTarget: (stream) => stream.pipe(stream) });
  await using world = await start([agent]);
  const stream = request(client(world, t).session);
  stream.end(UPLOAD);
  await until(() => world.cluster.memory.held > WHOLE_WINDOW);
  dialled.resolve({ ok: true });
  assert.equal((await textOf(stream)).length, UPLOAD.length);
  await until(() => world.cluster.memory.held === 0);
});

test("a drain says GOAWAY, and what is open goes on to its end", async (t) => {
  await using world = await start([echoing()]);
  const { session, socket } = client(world, t);
  const stream = await established(session);
  const goaway = once(session, "goaway");
  world.callers.drain();
  assert.equal((await goaway)[0], NGHTTP2_NO_ERROR);
  stream.end("still here");
  assert.equal(await textOf(stream), "still here");
  if (!socket.closed) await once(socket, "close");
});

test("a caller without a certificate gets GOAWAY with the sentence, and no session", async (t) => {
  const verifier = { verify: async () => assert.fail("no token was sent"), close: () => {} } as never;
  await using world = await start([echoing()], { verifier });
  const { session } = client(world, t);
  const [code, , sentence] = await once(session, "goaway");
  assert.equal(code, NGHTTP2_HTTP_1_1_REQUIRED);
  assert.match(String(sentence), /certificate/);
  await until(() => world.lines.some(({ msg }) => msg === "CONNECT failed"));
});

for (const [what, flood] of [
  ["PING", (session: ClientHttp2Session) => void session.ping(() => {})],
  ["resets", (session: ClientHttp2Session) => request(session).close(NGHTTP2_CANCEL)],
  ["resets of refused CONNECTs", (session: ClientHttp2Session) => request(session, "x:0").close(NGHTTP2_CANCEL)],
] as const) {
  test(`a flood of ${what} ends its own session alone`, async (t) => {
    const onStream = (stream: Stream) => void stream.on("error", () => {});
    await using world = await start([fakeAgent({ onStream })]);
    const [bad, good] = [client(world, t), client(world, t)];
    while (!bad.socket.destroyed) {
      for (let i = 0; i < 50 && !bad.session.destroyed && !bad.session.closed; i++) flood(bad.session);
      await new Promise((resolve) => setImmediate(resolve));
    }
    assert.equal(good.socket.destroyed, false);
    await until(() => world.lines.some(({ msg }) => msg === "HTTP/2 connection of a caller ended"));
    await until(async () => endedFor("flood").test(await world.metrics.registry.metrics()));
  });
}

/** The metric of one connection that was ended. */
function endedFor(reason: string): RegExp {
  return new RegExp(`^culvert_server_http2_connections_ended_total{listener="unix",reason="${reason}"} 1$`, "m");
}

for (const [what, reason, frames] of [
  [
    "CONTINUATION",
    "flood",
    [frame({ type: FRAME.headers, stream: 1 }), ...Array(64).fill(frame({ type: FRAME.continuation, stream: 1 }))],
  ],
  ["SETTINGS", "flood", Array(5_000).fill(settings())],
  ["a reset of no stream", "protocol", [connectRequest(1, "10.0.0.1:1"), reset(7)]],
] as const) {
  test(`a connection that ends for ${what} is counted as ${reason}, and an honest one is not`, async (t) => {
    await using world = await start([echoing()]);
    const honest = client(world, t);
    (await established(honest.session)).close();
    honest.session.destroy();
    const { socket } = world.call();
    t.after(() => socket.destroy());
    socket.write(Buffer.concat([PREFACE, settings(), ...frames]));
    const metrics = () => world.metrics.registry.metrics();
    await until(async () => endedFor(reason).test(await metrics()));
    assert.equal((await metrics()).match(/^culvert_server_http2_connections_ended_total/gm)?.length, 1);
  });
}

test("a flood of headers over the limit ends its own session", async (t) => {
  await using world = await start([echoing()]);
  const { socket } = world.call();
  t.after(() => socket.destroy());
  socket.write(Buffer.concat([PREFACE, settings()]));
  const field = Buffer.alloc(16_000, "\x00\x01a\x01b");
  for (let stream = 1; !socket.destroyed; stream += 2) {
    socket.write(connectRequest(stream, "10.0.0.1:1", field));
    await new Promise((resolve) => setImmediate(resolve));
  }
  await until(() => world.lines.some(({ reason }) => /too large headers/.test(reason ?? "")));
});

test("a caller that comes again at once after a flood is refused for a second, with a sentence", async (t) => {
  await using world = await start([echoing()]);
  const { session, socket } = client(world, t);
  while (!socket.destroyed) {
    for (let i = 0; i < 50 && !session.destroyed && !session.closed; i++) session.ping(() => {});
    await new Promise((resolve) => setImmediate(resolve));
  }
  const [, , sentence] = await once(client(world, t).session, "goaway");
  assert.match(String(sentence), /was a flood, or broke the protocol: connect again in 1 s/);
});

test("a connection ends after ten minutes without a CONNECT, and stays as long as it has one", async (t) => {
  await using world = await start([echoing()]);
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const { session, socket } = client(world, t);
  const stream = await established(session);
  t.mock.timers.tick(3_600_000);
  stream.end("still here");
  assert.equal(await textOf(stream), "still here");
  await new Promise((answered) => session.ping(answered));
  t.mock.timers.tick(599_999);
  assert.equal(session.closed, false);
  t.mock.timers.tick(1);
  await once(socket, "close");
  t.mock.timers.reset();
});

test("dials that are given up together after a while are no flood", async (t) => {
  const onStream = (stream: Stream) => void stream.on("error", () => {});
  await using world = await start([fakeAgent({ onStream })], { maxPendingConnects: 1_000 });
  const { session, socket } = client(world, t);
  const dials = Array.from({ length: 300 }, () => request(session));
  await until(() => world.cluster.pendingConnects === 300);
  await sleep(250); // the time in which a reset would be part of a flood
  for (const dial of dials) dial.close(NGHTTP2_CANCEL);
  await until(() => world.cluster.pendingConnects === 0);
  assert.deepEqual([session.closed, socket.destroyed], [false, false]);
});

test("pings that wait for each answer, as grpc-go's while it downloads, are no flood, however quick they are", async (t) => {
  await using world = await start([echoing()]);
  const { session } = client(world, t);
  const open = await established(session);
  for (let sent = 0; sent < 10_000; sent++)
    assert.equal(await new Promise((answered) => session.ping(answered)), null, `after ${sent} pings`);
  open.close();
});

test("a caller may close its CONNECTs by a reset as often as it opens them; on Node.js 20 it connects again", async (t) => {
  await using world = await start([echoing()]);
  const { session } = client(world, t);
  const open = await established(session);
  let goaways = 0;
  session.on("goaway", () => goaways++);
  for (let closed = 0; closed < 2_000 && goaways === 0; closed++) {
    const stream = request(session);
    await Promise.race([once(stream, "response"), once(session, "goaway")]);
    stream.destroy(new Error());
  }
  assert.equal(goaways, process.versions.node.startsWith("20.") ? 1 : 0);
  open.end("still here");
  if (goaways === 0) assert.equal(await textOf(open), "still here");
});
