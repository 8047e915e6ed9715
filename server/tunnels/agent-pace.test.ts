import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import { LinkRefused } from "../../shared/wire/handshake.ts";
import { AgentPace } from "./agent-pace.ts";

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
