import assert from "node:assert/strict";
import { duplexPair } from "node:stream";
import { test } from "node:test";
import { until } from "../../shared/basics/testing/wait.ts";
import { encodeHead } from "../../shared/wire/stream-head.ts";
import { isViolation } from "../../shared/yamux/errors.ts";
import { Session } from "../../shared/yamux/session.ts";
import { DuplexTransport } from "../../shared/yamux/testing/duplex-transport.ts";
import { type AgentStreamKind, AgentStreams } from "./agent-streams.ts";
import { contextWithCluster } from "./testing/context.ts";

/** A kind of streams that are sent back, and what was served. */
function echo(change: Partial<AgentStreamKind> = {}) {
  const heads: string[] = [];
  const kind: AgentStreamKind = {
    kind: "echo",
    maxOpen: 10,
    rate: { burst: 50, perSecond: 10 },
    serve: (stream, head) => {
      heads.push(String(head));
      stream.accept();
      stream.pipe(stream);
    },
    ...change,
  };
  return { kind, heads };
}

/** An agent's session with a server that serves these kinds, of which both ends have named `features`. */
function agentOf(features: readonly string[] = [], kinds: readonly AgentStreamKind[] = []) {
  const [near, far] = duplexPair();
  const { context, cluster } = contextWithCluster();
  const peer = { identity: "CN=a", peer: undefined, software: "test", probe: false, identifiers: {} };
  const opener = { cluster, link: { remote: "" }, agent: { agentId: "a", instance: "1", ...peer } };
  const streams = new AgentStreams(new Set(features), kinds, opener, context);
  let ended: Error | undefined;
  const server = new Session("server", new DuplexTransport(near), {
    onStream: (stream) => streams.onStream(stream),
    onClosed: (reason) => {
      ended = reason;
    },
  });
  const none = { onStream: () => assert.fail("no stream is opened here"), onClosed: () => {} };
  const agent = new Session("client", new DuplexTransport(far), none);
  return {
    server,
    /** The reason for which the server has ended the session. */
    get ended() {
      return ended;
    },
    open: (head?: Buffer) => agent.open(head).on("error", () => {}),
    [Symbol.dispose]: () => {
      agent.destroy();
      server.destroy();
    },
  };
}

test("each stream that an agent opens is reset before it is accepted, and the tunnel lives", async () => {
  using world = agentOf();
  const streams = [undefined, encodeHead({ kind: "probe", mode: "echo" })].map((head) => world.open(head));
  await until(() => streams.every((stream) => stream.destroyed));
  assert.ok(streams.every((stream) => !stream.acknowledged));
  assert.deepEqual([world.ended, world.server.streamCount], [undefined, 0]);
});

test("an agent that opens streams again and again loses its session", async () => {
  using world = agentOf();
  for (let opened = 0; opened < 100; opened++) world.open().destroy();
  await until(() => world.server.streamCount === 0);
  assert.equal(world.ended, undefined);
  for (let opened = 0; opened < 2_000 && world.ended === undefined; opened++) world.open().destroy();
  await until(() => world.ended !== undefined);
  assert.ok(isViolation(world.ended));
});

const ECHO = encodeHead({ kind: "echo", text: "who" });

test("a stream of a kind that both ends have named is served behind its head", async () => {
  const { kind, heads } = echo();
  using world = agentOf(["echo"], [kind]);
  const stream = world.open(ECHO);
  stream.end("through it");
  let text = "";
  for await (const chunk of stream) text += String(chunk);
  assert.deepEqual([text, heads], ["through it", ['{"kind":"echo","text":"who"}']]);
});

test("a kind that one end has not named is reset, as is one that nobody knows, and the tunnel lives", async () => {
  const { kind, heads } = echo();
  const other = echo({ kind: "other" });
  using world = agentOf(["echo", "unknown"], [kind, other.kind]);
  const unserved = [{ kind: "other" }, { kind: "unknown" }, { kind: 7 }, {}, { kind: "connect", target: "a:1" }];
  const refused = unserved.map((head) => world.open(encodeHead(head)));
  await until(() => refused.every((stream) => stream.destroyed));
  assert.ok(refused.every((stream) => !stream.acknowledged));
  const served = world.open(ECHO);
  await until(() => served.acknowledged);
  assert.deepEqual([heads.length, other.heads.length, world.ended], [1, 0, undefined]);
});

test("a kind has its own bounds: streams at once, and streams in a time; more are reset, and the others live", async () => {
  const { kind } = echo({ maxOpen: 2, rate: { burst: 3, perSecond: 0.001 } });
  using world = agentOf(["echo"], [kind]);
  const [one, two, third] = [world.open(ECHO), world.open(ECHO), world.open(ECHO)];
  await until(() => third.destroyed, "two are open");
  assert.deepEqual([one.acknowledged, two.acknowledged, third.acknowledged], [true, true, false]);
  one.destroy();
  await until(() => world.server.streamCount === 1);
  const fourth = world.open(ECHO);
  await until(() => fourth.acknowledged, "a place is free again");
  fourth.destroy();
  await until(() => world.server.streamCount === 1);
  const fifth = world.open(ECHO);
  await until(() => fifth.destroyed, "three were opened");
  assert.deepEqual([fifth.acknowledged, two.destroyed, world.ended], [false, false, undefined]);
});

test("streams that are served are not counted among those for which a tunnel ends", async () => {
  const { kind } = echo({ maxOpen: 1, rate: { burst: 90, perSecond: 100_000 } });
  using world = agentOf(["echo"], [kind]);
  for (let served = 0; served < 300; served++) {
    const stream = world.open(ECHO);
    await until(() => stream.acknowledged);
    stream.destroy();
    await until(() => world.server.streamCount === 0);
  }
  assert.equal(world.ended, undefined);
});

test("a stream whose head does not come is reset in the end", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const { kind } = echo();
  using world = agentOf(["echo"], [kind]);
  const silent = world.open();
  await new Promise(setImmediate);
  assert.equal(world.server.streamCount, 1);
  t.mock.timers.tick(5_000);
  await new Promise(setImmediate);
  assert.deepEqual([world.server.streamCount, silent.acknowledged], [0, false]);
});
