import assert from "node:assert/strict";
import { test } from "node:test";
import { CloseCode, LinkRefused } from "../../shared/wire/handshake.ts";
import { type AgentCandidate, admit, EarlierProcesses, type IdHolder } from "./agent-places.ts";
import { ClusterTunnels } from "./cluster-tunnels.ts";
import { fakeAgent } from "./testing/fake-agent.ts";

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

// ── earlier processes ───────────────────────────────────────────────────────────────────────────────────────────────

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

test("eight measure their way to a cluster at once, and one that has ended twice gives one place back", () => {
  const { places } = new ClusterTunnels("blue", { serverId: "srv", maxAgents: 1, drainTimeoutMs: 0 });
  const measuring = Array.from({ length: 8 }, () => places.reserveProbe());
  assert.throws(() => places.reserveProbe(), { closeCode: CloseCode.limited });
  for (let ends = 0; ends < 2; ends++) measuring[0]?.leave();
  places.reserveProbe();
  assert.throws(() => places.reserveProbe(), { closeCode: CloseCode.limited });
});

test("who measures for two minutes is ended, and nothing waits for one that has ended before", (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const { places } = new ClusterTunnels("blue", { serverId: "srv", maxAgents: 1, drainTimeoutMs: 0 });
  const [quick, slow] = [fakeAgent({ probe: true }), fakeAgent({ probe: true })];
  const ends = [quick, slow].map(({ tunnel }) => t.mock.method(tunnel, "destroy"));
  const ended = () => ends.map(({ mock }) => mock.callCount());
  const [first, second] = [places.reserveProbe(), places.reserveProbe()];
  first.join(quick.tunnel);
  second.join(slow.tunnel);
  first.leave();
  t.mock.timers.tick(119_999);
  assert.deepEqual(ended(), [0, 0]);
  t.mock.timers.tick(1);
  assert.deepEqual(ended(), [0, 1]);
  for (const { cut } of [quick, slow]) cut();
});
