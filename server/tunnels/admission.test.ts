import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import { CloseCode, LinkRefused } from "../../shared/wire/handshake.ts";
import { type AgentCandidate, AgentPace, admit, EarlierProcesses, type IdHolder } from "./admission.ts";

const candidate: AgentCandidate = { agentId: "a", instance: "1", identity: "CN=agent" };
const holder: IdHolder = {
  ...candidate,
  draining: false,
  suspended: false,
  runsBeside: false,
  address: "10.0.0.7",
};
/** Another process, which has taken the id from the one that asks. */
const other: IdHolder = { ...holder, instance: "2", runsBeside: true };
const roomy = { serverId: "srv-1", cluster: "default", agents: 1, maxAgents: 2 };
const full = { ...roomy, agents: 2 };

const TABLE: ReadonlyArray<
  readonly [
    sentence: string,
    holder: IdHolder | undefined,
    room: typeof roomy,
    closeCode: number | undefined,
    says: RegExp,
  ]
> = [
  ["a new agent id is admitted while there is room", undefined, roomy, undefined, /^$/],
  ["a new agent id is limited when the cluster is full", undefined, full, CloseCode.limited, /limit \(--max-agents\)/],
  ["a restarted agent is admitted", { ...holder, instance: "0" }, roomy, undefined, /^$/],
  ["a restarted agent needs no further room", { ...holder, instance: "0" }, full, undefined, /^$/],
  [
    "a second link of one process is refused, and told where the first is",
    holder,
    roomy,
    CloseCode.alreadyConnected,
    /already_connected.*"srv-1"/,
  ],
  ["a process whose tunnel drains may have a new one", { ...holder, draining: true }, roomy, undefined, /^$/],
  ["a process whose link is suspended may begin anew", { ...holder, suspended: true }, roomy, undefined, /^$/],
  [
    "a process that asks again beside the one that replaced it is refused, and told where that one is",
    other,
    roomy,
    CloseCode.alreadyConnected,
    /^another running process uses agent id "a" \(from 10\.0\.0\.7\): give each its own --agent-id$/,
  ],
  [
    "the same before anybody knows from where",
    { ...other, address: undefined },
    roomy,
    CloseCode.alreadyConnected,
    /^another running process uses agent id "a": /,
  ],
  ["a process takes the id back from one that drains", { ...other, draining: true }, roomy, undefined, /^$/],
  ["a process takes the id back from one that is suspended", { ...other, suspended: true }, roomy, undefined, /^$/],
  [
    "an id of another identity is a duplicate",
    { ...holder, identity: "CN=other" },
    roomy,
    CloseCode.duplicate,
    /another certificate/,
  ],
  [
    "another identity is a duplicate even after a restart",
    { ...holder, instance: "0", identity: "CN=other" },
    roomy,
    CloseCode.duplicate,
    /another certificate/,
  ],
];

for (const [sentence, held, room, closeCode, says] of TABLE) {
  test(sentence, () => {
    if (closeCode === undefined) return admit(candidate, held, room);
    assert.throws(
      () => admit(candidate, held, room),
      (error) => error instanceof LinkRefused && error.closeCode === closeCode && says.test(error.reason),
    );
  });
}

// ── earlier processes ──────────────────────────────────────────────────────────────────────────────────────────────

test("the next holder of an id knows the earlier processes of the one before, which does not change", () => {
  const before = new EarlierProcesses();
  before.note("1", false);
  const next = new EarlierProcesses(before);
  next.note("1", true);
  next.note("2", false);
  assert.deepEqual([next.isRunning("1"), next.has("2"), next.isRunning("2")], [true, true, false]);
  assert.deepEqual([before.isRunning("1"), before.has("2")], [false, false]);
});

test("only the last of many restarts are remembered, and a process that asks all the time", () => {
  const others = new EarlierProcesses();
  for (let restart = 0; restart < 10_000; restart++) {
    others.note("runs", true);
    others.note(String(restart), false);
    assert.equal(others.isRunning("runs"), true);
  }
  const remembered = Array.from({ length: 10_000 }, (_, restart) => String(restart)).filter((one) => others.has(one));
  assert.ok(remembered.length < 100 && remembered.includes("9999") && !remembered.includes("0"));
});

// ── pace ───────────────────────────────────────────────────────────────────────────────────────────────────────────

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
