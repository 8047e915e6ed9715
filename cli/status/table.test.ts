import assert from "node:assert/strict";
import { test } from "node:test";
import { type ClusterStatus, readStatus, type Status, type TunnelStatus } from "./ask.ts";
import { statusTable } from "./table.ts";

const NOW = new Date("2026-06-01T12:00:00Z");
const EMPTY: Status = {
  serverId: "srv-1",
  listeners: {},
  servers: null,
  draining: false,
  memory: { heldBytes: 1_536, limitBytes: 1_073_741_824 },
  problems: [],
  refusals: [],
  clusters: [],
};
const AGENT: TunnelStatus = {
  agent: "node-1",
  identity: "CN=agent,O=agents:blue",
  remote: "::ffff:10.0.0.9:40001",
  connectedAt: "2026-06-01T08:58:00Z",
  probe: false,
  draining: false,
  suspended: false,
  ...{ protocol: "culvert", standsStill: false },
  streams: 3,
  roundTripMs: 1.2,
};
const BLUE: ClusterStatus = {
  cluster: "blue",
  suspended: false,
  pendingConnects: 2,
  connects: { total: 1_204, perSecond: 3.2, outcomes: { ok: 1_200, no_agent: 3, caller_gone: 1 } },
  bytes: { carried: 5_242_880, perSecond: 2_048 },
  limits: { set: { connectsPerSecond: 10, streams: 100 }, hit: { connectsPerSecond: 12, streams: 1 } },
  refusals: [],
  tunnels: [AGENT],
};
const RED: ClusterStatus = {
  ...BLUE,
  cluster: "red",
  suspended: true,
  limits: { set: {}, hit: {} },
  tunnels: [],
  pendingConnects: 0,
  connects: { total: 0, perSecond: 0, outcomes: {} },
  bytes: { carried: 0, perSecond: 0 },
};

function refusalAt(at: string, reason = "the target is denied") {
  return { side: "caller", code: "forbidden", from: "CN=x", target: "10.0.0.1:22", reason, at, times: 2 };
}

function block(text: string, index: number): string[] {
  return text.trimEnd().split("\n\n")[index]?.split("\n") ?? [];
}

test("clusters, agents and refusals stand in columns, the newest refusal first", () => {
  const text = statusTable(
    {
      ...EMPTY,
      clusters: [{ ...BLUE, refusals: [refusalAt("2026-06-01T11:59:48.000Z")] }, RED],
      refusals: [
        { side: "agent", code: "401", from: "10.9.9.9", reason: "none", at: "2026-06-01T11:59:59Z", times: 1 },
      ],
    },
    NOW,
  );
  assert.equal(
    text,
    `server srv-1: tunnels hold 1.5 KiB of 1.0 GiB

CLUSTER  STATE      AGENTS  WAITING  OPEN  ENDED-OK  ENDED-BADLY  ENDED/S  BYTES    BYTES/S  LIMITS-HIT
blue     open       1       2        3     1,200     4            3.2      5.0 MiB  2.0 KiB  connectsPerSecond=10 refused 12 times, streams=100 refused once
red      suspended  0       0        0     0         0            0        0 B      0 B      -

CLUSTER  AGENT   LINK  IDENTITY                ADDRESS         SINCE  RTT     RATE  STREAMS
blue     node-1  up    CN=agent,O=agents:blue  10.0.0.9:40001  3h2m   1.2 ms  -     3

REFUSED  AGO  TIMES  WHO                         CODE       REASON
-        1s   1      agent 10.9.9.9              401        none
blue     12s  2      caller CN=x to 10.0.0.1:22  forbidden  the target is denied
`,
  );
});

test("a link whose line is slow is shown with the round trip and the rates that its acknowledgements have measured", () => {
  const pace = { roundMs: 3_300, sentPerSecond: null, receivedPerSecond: 20_480 };
  const cells = (change: Partial<TunnelStatus>) =>
    block(statusTable({ ...EMPTY, clusters: [{ ...BLUE, tunnels: [{ ...AGENT, ...change }] }] }, NOW), 2)[1]
      ?.split(/ {2,}/)
      .slice(6, 8);
  assert.deepEqual(cells({ roundTripMs: null, pace }), ["~3300 ms", "20.0 KiB/s in"]);
  assert.deepEqual(cells({ pace: { ...pace, sentPerSecond: 1_024 } }), ["1.2 ms", "20.0 KiB/s in, 1.0 KiB/s out"]);
  assert.deepEqual(cells({ roundTripMs: null }), ["-", "-"], "of an older server");
});

test("a link is up, suspended or draining, and one that is both waits", () => {
  const links = [
    { suspended: false, draining: false },
    { suspended: false, draining: true },
    { suspended: true, draining: false },
    { suspended: true, draining: true },
  ].map((link) => ({ ...AGENT, ...link }));
  const rows = block(statusTable({ ...EMPTY, clusters: [{ ...BLUE, tunnels: links }] }, NOW), 2).slice(1);
  assert.deepEqual(
    rows.map((row) => row.split(/ {2,}/)[2]),
    ["up", "draining", "suspended", "suspended"],
  );
});

test("agents that take no CONNECT now are told apart from those that do", () => {
  const suspended = { ...AGENT, suspended: true };
  const draining = { ...AGENT, draining: true };
  const agents = (...tunnels: TunnelStatus[]) =>
    block(statusTable({ ...EMPTY, clusters: [{ ...BLUE, tunnels }] }, NOW), 1)[1]?.split(/ {2,}/)[2];
  assert.equal(agents(AGENT, suspended, draining, suspended), "1, 2 suspended, 1 draining");
  assert.equal(agents(suspended), "0, 1 suspended");
});

test("a limit that slows or cuts is not said to have refused", () => {
  const limits = { set: { bytesPerSecond: 1_024 }, hit: { bytesPerSecond: 1_234, handshakesPerSecond: 2 } };
  const [, row = ""] = block(statusTable({ ...EMPTY, clusters: [{ ...BLUE, limits }] }, NOW), 1);
  assert.match(row, /bytesPerSecond=1024 slowed 1,234 times, handshakesPerSecond cut 2 times$/);
});

test("a doctor's tunnel is shown as a probe, and is no agent", () => {
  const probe = { ...AGENT, agent: "node-1-doctor", probe: true, streams: 7 };
  const text = statusTable({ ...EMPTY, clusters: [{ ...BLUE, tunnels: [AGENT, probe] }] }, NOW);
  const [agents, , open] = block(text, 1)[1]?.split(/ {2,}/).slice(2) ?? [];
  assert.deepEqual([agents, open], ["1", "3"]);
  assert.deepEqual(
    block(text, 2).map((row) => row.split(/ {2,}/).slice(1, 3)),
    [
      ["AGENT", "LINK"],
      ["node-1", "up"],
      ["node-1-doctor", "probe"],
    ],
  );
});

test("a round trip that nobody has answered is not told as one", () => {
  const text = statusTable({ ...EMPTY, clusters: [{ ...BLUE, tunnels: [{ ...AGENT, roundTripMs: null }] }] }, NOW);
  assert.equal(block(text, 2)[1]?.split(/ {2,}/)[6], "-");
});

test("a server of before, which says nothing of probes and waiting CONNECTs, is understood", () => {
  const { probe: _, ...agent } = AGENT;
  const { pendingConnects: _pending, ...blue } = BLUE;
  const { clusters } = readStatus({ ...EMPTY, clusters: [{ ...blue, tunnels: [agent] }] });
  assert.equal(clusters[0]?.tunnels[0]?.probe, false);
  assert.equal(clusters[0]?.pendingConnects, 0);
});

test("nothing to show is said, not left empty", () => {
  const text = statusTable(EMPTY, NOW);
  assert.match(text, /^no clusters$/m);
  assert.match(text, /^no agent is connected$/m);
  assert.match(text, /^no CONNECT and no agent was refused since the server started; .* in its log$/m);
});

test("a server that drains says so, and what is wrong with its clusters' files stands on top", () => {
  const text = statusTable({ ...EMPTY, draining: true, problems: ["red.yaml: name is missing."] }, NOW);
  assert.deepEqual(block(text, 0), [
    "server srv-1, draining: tunnels hold 1.5 KiB of 1.0 GiB",
    "! red.yaml: name is missing.",
  ]);
});

test("twenty refusals are shown, and how many more there are is said", () => {
  const refusals = Array.from({ length: 30 }, (_, second) =>
    refusalAt(new Date(NOW.getTime() - second * 1_000).toISOString(), `reason ${second}`),
  );
  const rows = block(statusTable({ ...EMPTY, refusals }, NOW), 3);
  assert.equal(rows.length, 22);
  assert.match(rows[1] ?? "", /reason 0$/);
  assert.equal(rows.at(-1), "and 10 earlier ones: --json has them");
});

test("names that others chose send nothing to the terminal but print", () => {
  const evil = "\u001b]0;owned\u0007\nblue  open";
  const tunnels = [{ ...AGENT, agent: evil, identity: evil, remote: evil }];
  const refusals = [{ ...refusalAt(NOW.toISOString(), evil), from: evil }];
  const text = statusTable(
    { ...EMPTY, serverId: evil, problems: [evil], clusters: [{ ...BLUE, tunnels, refusals }] },
    NOW,
  );
  assert.doesNotMatch(text, /[^ -~\n]/);
  assert.equal(block(text, 2).length, 2);
});

test("times are told in their two largest units", () => {
  for (const [since, shown] of [
    ["2026-06-01T12:00:00Z", "0s"],
    ["2026-06-01T11:57:55Z", "2m5s"],
    ["2026-05-29T07:00:00Z", "3d5h"],
    ["2026-06-01T12:00:09Z", "0s"], // its clock is ahead of ours
  ] as const) {
    const row = block(
      statusTable({ ...EMPTY, clusters: [{ ...BLUE, tunnels: [{ ...AGENT, connectedAt: since }] }] }, NOW),
      2,
    )[1];
    assert.equal(row?.split(/ {2,}/)[5], shown);
  }
});

test("a long target is cut, so that the columns after it stay on the screen", () => {
  const target = `${"a".repeat(250)}.example:443`;
  const refusals = [{ ...refusalAt(NOW.toISOString()), target }, refusalAt(NOW.toISOString())];
  const [heading = "", row = ""] = block(statusTable({ ...EMPTY, refusals }, NOW), 3);
  assert.ok(heading.indexOf("REASON") < 120, heading);
  assert.match(row, /caller CN=x to a{57}\.\.\. /);
});

test("an agent of Konnectivity is named, and one that takes no packets does not count as one that serves", () => {
  const stock = { ...AGENT, agent: "node-2", protocol: "konnectivity" };
  const tunnels = [AGENT, stock, { ...stock, agent: "node-3", standsStill: true }];
  const text = statusTable({ ...EMPTY, clusters: [{ ...BLUE, tunnels }] }, NOW);
  assert.match(block(text, 1)[1] ?? "", /^blue +open +2, 1 stands still /);
  const links = block(text, 2).slice(1);
  assert.match(links[0] ?? "", /^blue +node-1 +up +CN=agent/);
  assert.match(links[1] ?? "", /^blue +node-2 +up, konnectivity +CN=agent/);
  assert.match(links[2] ?? "", /^blue +node-3 +stands still, konnectivity +CN=agent/);
});
