import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { test } from "node:test";
import { until } from "../../shared/basics/testing/wait.ts";
import { encodePacket } from "../../shared/konnectivity/packet.ts";
import { FRAME, frame, PREFACE, settings } from "../../shared/node/testing/http2-frames.ts";
import type { Stream } from "../../shared/yamux/stream.ts";
import { type FakeAgent, fakeAgent } from "../tunnels/testing/fake-agent.ts";
import { start } from "./testing/caller.ts";
import { CallOfTest } from "./testing/grpc-call.ts";

async function startGrpc(agents: readonly FakeAgent[], options: Parameters<typeof start>[1] = {}) {
  const world = await start(agents, options);
  const calls: CallOfTest[] = [];
  return {
    ...world,
    callRaw: world.call,
    call: (headers = {}) => {
      const call = new CallOfTest(world.call().socket, headers);
      calls.push(call);
      return call;
    },
    [Symbol.asyncDispose]: async () => {
      for (const call of calls) call.cut();
      await world[Symbol.asyncDispose]();
    },
  };
}

function echo(): FakeAgent {
  return fakeAgent({ onTarget: (stream) => stream.pipe(stream) });
}

/** An agent whose dials take until `answer` is called. */
function slowAgent() {
  const answers: (() => void)[] = [];
  const answer = () => new Promise<{ ok: true }>((resolve) => answers.push(() => resolve({ ok: true })));
  return { agent: fakeAgent({ answer, onTarget: (stream) => stream.pipe(stream) }), answers };
}

test("a dial is answered with its random number, bytes flow, and one line tells of it", async () => {
  await using world = await startGrpc([echo()]);
  const call = world.call();
  call.dial();
  const { random, connectID, error } = await call.next("dialResponse");
  assert.deepEqual([random, error], [77n, ""]);
  assert.notEqual(connectID, 0n);
  call.sendData(connectID, "hello");
  await until(() => call.text(connectID) === "hello");
  call.send({ case: "closeRequest", value: { connectID } });
  assert.equal((await call.next("closeResponse")).error, "");
  assert.equal(await call.status(), "0");
  await until(() => world.lines.length === 1);
  const [line] = world.lines;
  assert.deepEqual([line?.outcome, line?.caller, line?.target], ["ok", "unix", "10.0.0.1:10250"]);
  assert.deepEqual([line?.bytesUp, line?.bytesDown, line?.endedBy, line?.reason], [5, 5, "caller", undefined]);
});

test("megabytes pass in both directions, in packets that wait for each other", async () => {
  await using world = await startGrpc([echo()]);
  const call = world.call();
  const connectID = await call.open();
  const sent = randomBytes(3_000_000);
  for (let at = 0; at < sent.length; at += 100_000) call.sendData(connectID, sent.subarray(at, at + 100_000));
  await until(() => call.text(connectID).length === sent.length);
  assert.ok(Buffer.concat(call.received.get(connectID) ?? []).equals(sent));
});

test("what a call holds that its target does not take is counted for its cluster", async () => {
  await using world = await startGrpc([fakeAgent()]);
  const call = world.call();
  const connectID = await call.open();
  for (let sent = 0; sent < 32; sent++) call.sendData(connectID, Buffer.alloc(32 * 1024));
  await until(() => world.cluster.memory.held > 256 * 1024);
  call.cut();
  await until(() => world.cluster.memory.held === 0);
});

test("the target's end is a CLOSE_RSP after its last byte, and the agent's stream ends cleanly", async () => {
  const agent = fakeAgent({ onTarget: (stream) => stream.end("all") });
  await using world = await startGrpc([agent]);
  const call = world.call();
  const connectID = await call.open();
  await call.next("closeResponse");
  assert.equal(call.text(connectID), "all");
  assert.equal(await call.status(), "0");
  await until(() => world.lines.length === 1);
  assert.deepEqual([world.lines[0]?.endedBy, world.lines[0]?.reason], ["target", undefined]);
});

test("a target gets the end when its caller closes, may say goodbye, and is reset when it goes on", async () => {
  const agent = fakeAgent({
    onTarget: (stream) => {
      stream.resume();
      stream.once("end", () => stream.write("goodbye", () => stream.write(Buffer.alloc(100_000))));
    },
  });
  await using world = await startGrpc([agent]);
  const call = world.call();
  const connectID = await call.open();
  call.send({ case: "closeRequest", value: { connectID } });
  assert.equal(await call.status(), "0");
  await until(() => agent.streams[0]?.destroyed === true && world.lines.length === 1);
  assert.match(world.lines[0]?.reason ?? "", /^the caller had closed the connection, and the target went on sending$/);
  assert.equal(call.text(connectID), "");
});

test("a target that resets the connection is a CLOSE_RSP with an error", async () => {
  const agent = fakeAgent({ onTarget: (stream) => stream.once("data", () => stream.destroy(new Error("reset"))) });
  await using world = await startGrpc([agent]);
  const call = world.call();
  call.sendData(await call.open(), "x");
  assert.equal((await call.next("closeResponse")).error, "the connection was reset");
  assert.equal(await call.status(), "0");
});

test("a refused dial has the sentence in its DIAL_RSP, as in an answer to a CONNECT", async () => {
  const answer = () => ({ ok: false, error: "dial_refused", detail: "the target refused 50 % of it" }) as const;
  await using world = await startGrpc([fakeAgent({ answer })]);
  const call = world.call();
  call.dial();
  const { random, connectID, error } = await call.next("dialResponse");
  assert.deepEqual([random, connectID], [77n, 0n]);
  assert.match(error, /the target refused 50 % of it/);
  assert.equal(await call.status(), "0");
  await until(() => world.lines.length === 1);
  assert.equal(world.lines[0]?.outcome, "dial_refused");
});

for (const [what, address, sentence] of [
  ["a target that is none", "10.0.0.1", /port/],
  ["no agent", "10.0.0.1:443", /no agent/],
] as const) {
  test(`${what} is a sentence in the DIAL_RSP`, async () => {
    await using world = await startGrpc([]);
    const call = world.call();
    call.dial(address);
    assert.match((await call.next("dialResponse")).error, sentence);
  });
}

test("a protocol that is not tcp is refused", async () => {
  await using world = await startGrpc([echo()]);
  const call = world.call();
  call.send({ case: "dialRequest", value: { protocol: "udp", address: "10.0.0.1:53", random: 5n } });
  const { random, error } = await call.next("dialResponse");
  assert.deepEqual([random, error], [5n, 'the protocol "udp" is not carried, only "tcp"']);
});

test("a second DIAL_REQ on one call is refused, and the first connection goes on", async () => {
  await using world = await startGrpc([echo()]);
  const call = world.call();
  const connectID = await call.open();
  call.dial("10.0.0.2:1", 78n);
  await until(() => call.packets.length === 2);
  assert.deepEqual(
    call.packets.map(({ value }) => ("random" in value ? value.random : undefined)),
    [77n, 78n],
  );
  call.sendData(connectID, "on");
  await until(() => call.text(connectID) === "on");
});

for (const [how, leave] of [
  ["DIAL_CLS", (call: CallOfTest) => call.send({ case: "closeDial", value: { random: 77n } })],
  ["CLOSE_REQ", (call: CallOfTest) => call.send({ case: "closeRequest", value: { connectID: 0n } })],
  ["the end of the call", (call: CallOfTest) => call.stream.end()],
  ["a reset of the call", (call: CallOfTest) => call.stream.close(8)],
  ["the loss of the connection", (call: CallOfTest) => call.cut()],
] as const) {
  test(`a dial is cancelled by ${how}`, async () => {
    const { agent, answers } = slowAgent();
    await using world = await startGrpc([agent]);
    const call = world.call();
    call.dial();
    await until(() => answers.length === 1);
    leave(call);
    await until(() => world.lines.length === 1 && agent.streams[0]?.destroyed === true);
    assert.equal(world.lines[0]?.outcome, "caller_gone");
    assert.deepEqual(call.packets, []);
  });
}

test("a DIAL_CLS for another dial changes nothing", async () => {
  const { agent, answers } = slowAgent();
  await using world = await startGrpc([agent]);
  const call = world.call();
  call.dial();
  call.send({ case: "closeDial", value: { random: 78n } });
  await until(() => answers.length === 1);
  answers[0]?.();
  assert.equal((await call.next("dialResponse")).error, "");
});

for (const [how, leave] of [
  ["ends its call", (call: CallOfTest) => call.stream.end()],
  ["sends a DIAL_CLS, too late", (call: CallOfTest) => call.send({ case: "closeDial", value: { random: 77n } })],
] as const) {
  test(`a caller that ${how} has closed its connection`, async () => {
    await using world = await startGrpc([echo()]);
    const call = world.call();
    await call.open();
    leave(call);
    assert.equal((await call.next("closeResponse")).error, "");
    await until(() => world.lines.length === 1);
    assert.deepEqual([world.lines[0]?.outcome, world.lines[0]?.reason], ["ok", undefined]);
  });
}

for (const [how, leave] of [
  ["loses its connection", (call: CallOfTest) => call.cut()],
  ["ends its call within a packet", (call: CallOfTest) => call.stream.end(Buffer.from([0, 0, 0, 0, 9]))],
] as const) {
  test(`a caller that ${how} resets the agent's stream`, async () => {
    const ends: string[] = [];
    const agent = fakeAgent({
      onTarget: (stream) => {
        stream.resume();
        stream.once("end", () => ends.push("end"));
        stream.once("close", () => ends.push("close"));
      },
    });
    await using world = await startGrpc([agent]);
    const call = world.call();
    await call.open();
    leave(call);
    await until(() => world.lines.length === 1 && ends.length > 0);
    assert.deepEqual(ends, ["close"]);
    assert.notEqual(world.lines[0]?.reason, undefined);
  });
}

test("packets of an unknown connection are answered, its DATA once, and the call's own goes on", async () => {
  await using world = await startGrpc([echo()]);
  const call = world.call();
  call.sendData(5n, Buffer.alloc(300_000)); // comes in many parts
  call.sendData(5n, "early");
  const connectID = await call.open();
  call.sendData(9n, "x");
  call.send({ case: "closeRequest", value: { connectID: 10n } });
  call.sendData(connectID, "on");
  await until(() => call.text(connectID) === "on");
  const closed = call.packets.filter((packet) => packet.case === "closeResponse");
  assert.deepEqual(
    closed.map(({ value }) => [value.connectID, value.error]),
    [5n, 9n, 10n].map((id) => [id, "this gRPC call has no such connection"]),
  );
});

test("a call ends whose packets belong to no connection, by the hundred, also where no answer is read", async () => {
  await using world = await startGrpc([echo()]);
  const call = world.call();
  await call.open();
  call.stream.pause();
  const unknown = encodePacket({ case: "closeRequest", value: { connectID: 1_000_000n } });
  const many = Buffer.concat(Array(1_000).fill(unknown));
  const timer = setInterval(() => call.stream.write(many), 1);
  await until(() => world.lines.length === 1).finally(() => clearInterval(timer));
  assert.equal(world.lines[0]?.outcome, "ok");
  assert.equal(world.lines[0]?.reason, "the caller sends too many packets that belong to no connection");
});

test("a caller that stops reading holds up its target, and nothing is held for it but a window", async () => {
  let sent = 0;
  const agent = fakeAgent({
    onTarget: (stream) => {
      const more = () => {
        for (let taken = true; taken && sent < 50_000_000; sent += 65_536) taken = stream.write(Buffer.alloc(65_536));
      };
      stream.on("drain", more);
      more();
    },
  });
  await using world = await startGrpc([agent], { establishedGapMs: 0 });
  const call = world.call();
  call.stream.pause();
  call.dial();
  let before = -1;
  await until(() => {
    const stands = sent > 0 && sent === before;
    before = sent;
    return stands;
  });
  assert.ok(sent < 5_000_000, `${sent}`);
  call.stream.resume();
  await until(() => sent >= 50_000_000);
});

test("a target that takes nothing holds up its caller", async () => {
  const agent = fakeAgent({ onTarget: (stream) => stream.pause() });
  await using world = await startGrpc([agent]);
  const call = world.call();
  const connectID = await call.open();
  for (let count = 0; count < 200; count++) call.sendData(connectID, Buffer.alloc(65_536));
  let before = -1;
  await until(() => {
    const stands = call.stream.writableLength === before;
    before = call.stream.writableLength;
    return stands;
  });
  assert.ok(before > 8_000_000, `${before} still wait at the caller`);
});

test("a connection drains although the bytes of a caller were not read when its target reset", async () => {
  const targets: Stream[] = [];
  await using world = await startGrpc([fakeAgent({ onTarget: (stream) => void targets.push(stream.pause()) })]);
  const call = world.call();
  const connectID = await call.open();
  call.sendData(connectID, Buffer.alloc(2_000_000));
  await until(() => (targets[0]?.readableLength ?? 0) > 0 && call.stream.writableLength > 0);
  targets[0]?.destroy(new Error("reset"));
  assert.equal((await call.next("closeResponse")).error, "the connection was reset");
  world.callers.drain();
  await until(() => call.connectionClosed);
});

test("grpc-go's GOAWAY before it closes a connection, which nghttp2 does not accept, is no violation", async () => {
  await using world = await startGrpc([echo()]);
  const leaving = world.call();
  const goaway = frame({ type: FRAME.goaway, payload: Buffer.from("0000000100000000", "hex") });
  await leaving.open();
  leaving.socket.write(goaway); // stream 1 is the caller's own
  const other = world.callRaw();
  other.socket.write(Buffer.concat([PREFACE, settings(), goaway])); // before its first call, too
  await until(() => leaving.closed && (other.ended || other.socket.destroyed));
  await world.call().open();
  assert.deepEqual(
    world.lines.filter(({ msg }) => msg.startsWith("HTTP/2")),
    [],
  );
});

test("another method is UNIMPLEMENTED, in an answer without messages", async () => {
  await using world = await startGrpc([]);
  const call = world.call({ ":path": "/AgentService/Connect" });
  assert.match(await call.status(), /^12 only \/ProxyService\/Proxy is served here/);
  assert.equal(call.trailers[":status"], 200);
});

test("bytes that are no packet end the call with INVALID_ARGUMENT", async () => {
  await using world = await startGrpc([]);
  const call = world.call();
  call.stream.write(Buffer.from([1, 0, 0, 0, 0]));
  assert.match(await call.status(), /^3 a compressed gRPC message came/);
});

test("a call without a DIAL_REQ ends after the time for a header", async () => {
  await using world = await startGrpc([], { headerTimeoutMs: 20 });
  assert.match(await world.call().status(), /^4 the DIAL_REQ did not arrive in time$/);
});

test("a target that speaks first waits for the gap, in which konnectivity-client learns the connection's number", async () => {
  const agent = fakeAgent({ onTarget: (stream) => stream.write("hello") });
  await using world = await startGrpc([agent], { establishedGapMs: 60_000 });
  const call = world.call();
  const connectID = await call.open();
  await new Promise((resolve) => setTimeout(resolve, 20));
  assert.equal(call.text(connectID), "");
  call.sendData(connectID, "x");
  await until(() => call.text(connectID) === "hello");
});
