import assert from "node:assert/strict";
import { test } from "node:test";
import { until } from "../../shared/basics/testing/wait.ts";
import { CulvertError } from "../../shared/outcomes.ts";
import { fakeAgent } from "../tunnels/testing/fake-agent.ts";
import { CONNECT, ESTABLISHED, type Line, start } from "./testing/caller.ts";

test("a CONNECT is answered with 200 alone, bytes flow, and one line tells of it", async () => {
  const agent = fakeAgent({ onTarget: (stream) => stream.pipe(stream) });
  await using world = await start([agent]);
  const caller = world.call();
  assert.equal(await caller.ask(CONNECT), ESTABLISHED);
  caller.socket.write("hello");
  await until(() => caller.text.endsWith("hello"));
  caller.socket.end();
  await until(() => caller.ended && world.lines.length === 1);
  const {
    outcome,
    cluster,
    caller: name,
    target,
    agent: agentId,
    bytesUp,
    bytesDown,
    endedBy,
  } = world.lines[0] as Line;
  assert.deepEqual([outcome, cluster, name, target, agentId], ["ok", "default", "unix", "10.0.0.1:10250", "a"]);
  assert.deepEqual([bytesUp, bytesDown, endedBy], [5, 5, "caller"]);
});

test("an open connection counts for its cluster until it has ended", async (t) => {
  await using world = await start([fakeAgent({ onTarget: (stream) => stream.pipe(stream) })]);
  const counted = t.mock.method(world.cluster.memory, "onConnection").mock;
  const sum = () => counted.calls.reduce((all, { arguments: [bytes] }) => all + bytes, 0);
  const caller = world.call();
  await caller.ask(CONNECT);
  await until(() => sum() > 0);
  caller.socket.destroy();
  await until(() => world.lines.length === 1);
  assert.equal(sum(), 0);
});

test("a caller that speaks first does not wait for the gap", async () => {
  const agent = fakeAgent({ onTarget: (stream) => stream.pipe(stream) });
  await using world = await start([agent], { establishedGapMs: 60_000 });
  const caller = world.call();
  await caller.ask(CONNECT);
  caller.socket.write("first");
  await until(() => caller.text.endsWith("first"));
});

test("bytes sent together with the CONNECT, and before the answer, reach the target once and in order", async () => {
  const got: Buffer[] = [];
  let answer: (() => void) | undefined;
  const agent = fakeAgent({
    answer: () =>
      new Promise((resolve) => {
        answer = () => resolve({ ok: true });
      }),
    onTarget: (stream) => stream.on("data", (chunk: Buffer) => got.push(chunk)),
  });
  await using world = await start([agent]);
  const caller = world.call();
  caller.socket.write(`${CONNECT}one `);
  await until(() => answer !== undefined);
  caller.socket.write("two ");
  await new Promise((resolve) => setTimeout(resolve, 20));
  assert.equal(Buffer.concat(got).length, 0, "nothing before the dial is over");
  answer?.();
  await until(() => caller.text === ESTABLISHED);
  caller.socket.end("three");
  await until(() => Buffer.concat(got).length >= 13);
  assert.equal(Buffer.concat(got).toString(), "one two three");
  await until(() => agent.streams[0]?.readableEnded === true);
  agent.streams[0]?.end();
  await until(() => world.lines.length === 1);
  assert.equal(world.lines[0]?.bytesUp, 13);
});

test("losing the agent ends its connections at once, and the log says who", async () => {
  const agent = fakeAgent({ onTarget: (stream) => stream.pipe(stream) });
  await using world = await start([agent]);
  const caller = world.call();
  await caller.ask(CONNECT);
  caller.socket.write("x");
  await until(() => caller.text.endsWith("x"));
  agent.cut();
  await until(() => caller.socket.destroyed && world.lines.length === 1);
  assert.equal(caller.ended, false);
  assert.equal(world.lines[0]?.outcome, "agent_lost");
  assert.equal(world.lines[0]?.endedBy, "agent");
  assert.equal(world.lines[0]?.reason, "the session ended");
});

test("an agent whose drain has run out is not taken for one that is lost, unless the time was ours", async () => {
  for (const [closedBecause, reason] of [
    [undefined, /^the agent has shut down, and this was still open when its --drain-timeout was over$/],
    ['cluster "default" is suspended', /^the session ended$/],
  ] as const) {
    const agent = fakeAgent({ onTarget: (stream) => stream.pipe(stream) });
    await using world = await start([agent]);
    const caller = world.call();
    await caller.ask(CONNECT);
    world.cluster.closedBecause = closedBecause;
    void agent.session.close(0);
    await until(() => caller.socket.destroyed && world.lines.length === 1);
    const [line] = world.lines;
    assert.deepEqual([line?.outcome, line?.endedBy], ["agent_lost", "agent"]);
    assert.match(line?.reason ?? "", reason);
  }
});

test("an agent that is lost after it has asked to leave is not blamed on its --drain-timeout", async () => {
  const agent = fakeAgent({ onTarget: (stream) => stream.pipe(stream) });
  await using world = await start([agent]);
  const caller = world.call();
  await caller.ask(CONNECT);
  agent.session.drain();
  await until(() => agent.tunnel.leaving);
  agent.cut(new Error("read ECONNRESET"));
  await until(() => caller.socket.destroyed && world.lines.length === 1);
  const [line] = world.lines;
  assert.deepEqual([line?.outcome, line?.reason], ["agent_lost", "the session ended: read ECONNRESET"]);
});

test("a CONNECT whose caller is not permitted any more is refused before its answer, and reset behind it; the first reason stays", async () => {
  const [first, second] = ["first", "second"].map((reason) => new CulvertError("forbidden", reason));
  const verify = async () => ({ ok: { subject: "me", expiresAt: new Date() } });
  for (const isAnswered of [false, true]) {
    const agent = fakeAgent(isAnswered ? {} : { onStream: (stream) => stream.accept() });
    await using world = await start([agent], { verifier: { verify, close: () => {} } });
    const caller = world.call();
    caller.socket.write("CONNECT 10.0.0.1:443 HTTP/1.1\r\nProxy-Authorization: Bearer a.b.c\r\n\r\n");
    await until(() => (isAnswered ? caller.text === ESTABLISHED : agent.streams.length === 1));
    const [connect] = [...(world.open.all()[0]?.connects ?? [])];
    for (const reason of [first, second]) connect?.refuse(reason ?? assert.fail());
    await until(() => caller.socket.destroyed || caller.ended);
    assert.match(caller.text, isAnswered ? /^HTTP\/1\.1 200 [^\r]*\r\n\r\n$/ : /^HTTP\/1\.1 403 first\r\n/);
    await until(() => world.lines.length === 1);
    assert.deepEqual([world.lines[0]?.outcome, world.lines[0]?.reason], ["forbidden", "first"]);
    assert.deepEqual(world.open.all(), [], "nothing is left to be refused");
  }
});

test("a CONNECT that is refused at the moment of its agent's answer leaves no stream behind", async (t) => {
  const verify = async () => ({ ok: { subject: "me", expiresAt: new Date() } });
  const agent = fakeAgent({ onTarget: (stream) => stream.pipe(stream) });
  await using world = await start([agent], { verifier: { verify, close: () => {} } });
  const open = agent.tunnel.open.bind(agent.tunnel);
  t.mock.method(agent.tunnel, "open", async (...asked: Parameters<typeof open>) => {
    const stream = await open(...asked);
    for (const connect of world.open.all()[0]?.connects ?? []) connect.refuse(new CulvertError("forbidden", "no more"));
    return stream;
  });
  const caller = world.call();
  assert.match(
    await caller.ask(`${CONNECT.trimEnd()}\r\nProxy-Authorization: Bearer a.b.c\r\n\r\n`),
    /^HTTP\/1\.1 403 /,
  );
  await until(() => agent.tunnel.streamCount === 0, "the end of the stream");
});
