import assert from "node:assert/strict";
import { once } from "node:events";
import { duplexPair } from "node:stream";
import { type TestContext, test } from "node:test";
import { CulvertError } from "../../shared/outcomes.ts";
import { LinkRefused } from "../../shared/wire/handshake.ts";
import { AgentPace, HelloPlaces, hellosAllowed } from "./agent-limits.ts";

function placesOf(maxAgents: number) {
  const counted = { bytes: 0 };
  const memory = {
    onConnection: (bytes: number) => {
      counted.bytes += bytes;
    },
  };
  const rules = { name: "blue", maxAgents, memory };
  return { rules, counted, places: new HelloPlaces(rules) };
}

test("each agent has two places, and a small cluster has some more", () => {
  assert.deepEqual([1, 8, 9, 100].map(hellosAllowed), [16, 16, 18, 200]);
});

test("one too many is told when to come back, and the next gets in where one has left", () => {
  const { places, rules } = placesOf(9);
  const enter = () => {
    const [socket] = duplexPair();
    places.join(socket);
    return socket;
  };
  const first = enter();
  for (let count = 1; count < 18; count++) enter();
  assert.throws(
    enter,
    (error) =>
      error instanceof CulvertError &&
      error.code === "overloaded" &&
      error.retryAfterMs === 1_000 &&
      /cluster "blue" .*\(--max-agents\)/.test(error.message),
  );
  places.leave(first);
  places.leave(first);
  enter();
  assert.throws(enter);
  rules.maxAgents = 10;
  enter();
  assert.equal(places.size, 19);
});

test("a connection leaves its place when it closes, and what it takes of the process is counted meanwhile", async () => {
  const { places, counted } = placesOf(1);
  const [socket] = duplexPair();
  places.join(socket);
  assert.equal(counted.bytes, 70 * 1024);
  socket.destroy();
  await once(socket, "close");
  places.leave(socket);
  assert.deepEqual([places.size, counted.bytes], [0, 0]);
  places.join(socket);
  assert.deepEqual([places.size, counted.bytes], [0, 0], "it has closed before");
});

test("a connection that is closing counts until it has closed, also beyond the places, only once, and whoever leaves it", async () => {
  const { places, counted } = placesOf(1);
  const sockets = Array.from({ length: 17 }, () => duplexPair()[0]);
  for (const socket of sockets) {
    places.closing(socket);
    places.closing(socket);
    places.leave(socket);
  }
  assert.deepEqual([places.size, counted.bytes], [17, 17 * 70 * 1024]);
  assert.throws(() => places.join(duplexPair()[0]), /or are closing/);
  for (const socket of sockets) {
    socket.destroy();
    places.leave(socket);
  }
  assert.equal(places.size, 17, "destroyed, and not closed yet");
  await Promise.all(sockets.map((socket) => once(socket, "close")));
  assert.deepEqual([places.size, counted.bytes], [0, 0]);
});

// ── how often tunnels begin ─────────────────────────────────────────────────────────────────────────────────────────

/** A pace whose clock the test turns; `begin` tells how long to wait, ms, 0: begun. */
function pace(t: TestContext) {
  const clock = { now: 0 };
  t.mock.method(performance, "now", () => clock.now);
  const pace = new AgentPace();
  const begin = (agentId: string, identity = "CN=agent"): number => {
    try {
      pace.begin({ agentId, identity });
      return 0;
    } catch (error) {
      assert.ok(error instanceof LinkRefused && error.closeCode === 4429);
      return error.retryAfterMs ?? assert.fail();
    }
  };
  const offend = (agentId: string, identity = "CN=agent") => pace.offended({ agentId, identity });
  return { clock, begin, offend };
}

test("an agent may begin twenty tunnels at once and one a second, and others have theirs", (t) => {
  const { clock, begin } = pace(t);
  const begun = Array.from({ length: 30 }, () => begin("a")).filter((waitMs) => waitMs === 0);
  assert.equal(begun.length, 20);
  assert.equal(begin("a"), 1_000);
  assert.equal(begin("b"), 0);
  assert.equal(begin("a", "CN=other"), 0);
  clock.now += 1_000;
  assert.deepEqual([begin("a"), begin("a")], [0, 1_000]);
});

test("an agent that looks for another server may come to this one as often as it does", () => {
  const pace = new AgentPace();
  const agent = { agentId: "a", identity: "CN=a" };
  for (let times = 0; times < 100; times++) {
    pace.begin(agent);
    pace.didNotBegin(agent);
  }
  for (let times = 0; times < 20; times++) pace.begin(agent);
  assert.throws(() => pace.begin(agent), /begins tunnels too often/);
});

test("after a violation an agent waits, longer each time, and the others of its identity do not", (t) => {
  const { clock, begin, offend } = pace(t);
  const waits: number[] = [];
  for (let offence = 0; offence < 8; offence++) {
    offend("bad");
    waits.push(begin("bad"));
    assert.equal(begin("good"), 0);
    clock.now += waits.at(-1) ?? 0;
    assert.equal(begin("bad"), 0);
  }
  assert.deepEqual(waits, [1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000]);
});

test("an identity that offends under one agent id after another waits as a whole", (t) => {
  const { begin, offend } = pace(t);
  for (let index = 0; index < 10; index++) offend(`bad-${index}`);
  assert.equal(begin("good"), 0);
  offend("bad-10");
  assert.equal(begin("good"), 1_000);
  offend("bad-11");
  assert.equal(begin("good"), 2_000);
  assert.equal(begin("good", "CN=other"), 0);
});
