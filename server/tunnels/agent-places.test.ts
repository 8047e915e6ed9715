import assert from "node:assert/strict";
import { test } from "node:test";
import { CloseCode, LinkRefused } from "../../shared/wire/handshake.ts";
import { type AgentPlaces, EarlierProcesses } from "./agent-places.ts";
import { ClusterTunnels } from "./cluster-tunnels.ts";
import { fakeAgent } from "./testing/fake-agent.ts";

const candidate = { agentId: "a", instance: "1", identity: "CN=agent" };

/** The agent that has a place before the candidate asks; by default it is the candidate itself. */
interface Held extends Partial<typeof candidate> {
  readonly state?: "draining" | "suspended" | "without tunnel";
  /** It has taken the id from the candidate. */
  readonly hasReplaced?: true;
}

function hold(places: AgentPlaces, { state, ...names }: Held): void {
  const { tunnel, link } = fakeAgent({ ...candidate, ...names });
  const place = places.reserve(tunnel.agent);
  if (state !== "without tunnel") place.join(tunnel);
  if (state === "draining") tunnel.drain(0);
  if (state === "suspended") link.suspend();
}

/** Another process, which has taken the id from the one that asks. */
const other: Held = { instance: "2", hasReplaced: true };

const TABLE: ReadonlyArray<
  readonly [sentence: string, held: Held, maxAgents: number, closeCode: number | undefined, says: RegExp]
> = [
  ["a new agent id is admitted while there is room", { agentId: "b" }, 2, undefined, /^$/],
  [
    "a new agent id is limited when the cluster is full",
    { agentId: "b" },
    1,
    CloseCode.limited,
    /^cluster "default" has 1 agents, its limit \(--max-agents\)$/,
  ],
  ["a restarted agent is admitted", { instance: "0" }, 2, undefined, /^$/],
  ["a restarted agent needs no further room", { instance: "0" }, 1, undefined, /^$/],
  [
    "a second link of one process is refused, and told where the first is",
    {},
    2,
    CloseCode.alreadyConnected,
    /already_connected.*"srv-1"/,
  ],
  ["a process whose tunnel drains may have a new one", { state: "draining" }, 2, undefined, /^$/],
  ["a process whose link is suspended may begin anew", { state: "suspended" }, 2, undefined, /^$/],
  [
    "a process that asks again beside the one that replaced it is refused, and told where that one is",
    other,
    2,
    CloseCode.alreadyConnected,
    /^another running process uses agent id "a" \(from 127\.0\.0\.1\): give each its own --agent-id$/,
  ],
  [
    "the same before anybody knows from where",
    { ...other, state: "without tunnel" },
    2,
    CloseCode.alreadyConnected,
    /^another running process uses agent id "a": /,
  ],
  ["a process takes the id back from one that drains", { ...other, state: "draining" }, 2, undefined, /^$/],
  ["a process takes the id back from one that is suspended", { ...other, state: "suspended" }, 2, undefined, /^$/],
  ["an id of another identity is a duplicate", { identity: "CN=other" }, 2, CloseCode.duplicate, /another certificate/],
  [
    "another identity is a duplicate even after a restart",
    { instance: "0", identity: "CN=other" },
    2,
    CloseCode.duplicate,
    /another certificate/,
  ],
];

for (const [sentence, { hasReplaced, ...held }, maxAgents, closeCode, says] of TABLE) {
  test(sentence, () => {
    const { places } = new ClusterTunnels("default", { serverId: "srv-1", maxAgents, drainTimeoutMs: 0 });
    if (hasReplaced) hold(places, candidate);
    hold(places, held);
    if (closeCode === undefined) {
      places.reserve(candidate);
      return;
    }
    assert.throws(
      () => places.reserve(candidate),
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
