import assert from "node:assert/strict";
import { createServer } from "node:http";
import { type TestContext, test } from "node:test";
import { listening } from "../../shared/basics/testing/wait.ts";
import { type ClusterStatus, readStatus, type TunnelStatus } from "./ask.ts";
import { fleetOf, fleetTable, type ServerAnswer } from "./fleet.ts";
import { runStatus } from "./status.ts";

const NOW = new Date("2026-06-01T12:00:00Z");
const MEMORY = { heldBytes: 1_536, limitBytes: 1_073_741_824 };

function tunnel(agent: string, change: Partial<TunnelStatus> = {}): TunnelStatus {
  return {
    agent,
    identity: "CN=agent",
    remote: "10.0.0.9:40001",
    connectedAt: "2026-06-01T11:58:00Z",
    probe: false,
    draining: false,
    suspended: false,
    ...{ protocol: "culvert", standsStill: false },
    streams: 3,
    roundTripMs: 1.2,
    ...change,
  };
}

function cluster(name: string, ...tunnels: TunnelStatus[]): ClusterStatus {
  return {
    cluster: name,
    suspended: false,
    pendingConnects: 1,
    refusals: [],
    tunnels,
    connects: { total: 10, perSecond: 0.1, outcomes: { ok: 8 } },
    bytes: { carried: 1_024, perSecond: 2 },
    limits: { set: {}, hit: {} },
  };
}

const server = (serverId: string, clusters: ClusterStatus[], change: object = {}) => ({
  kind: "server",
  serverId,
  servers: 3,
  draining: false,
  memory: MEMORY,
  problems: [],
  refusals: [],
  clusters,
  ...change,
});

function answer(address: string, all: ReturnType<typeof server>): ServerAnswer {
  return { address, all, status: readStatus(all) };
}

const THREE: readonly ServerAnswer[] = [
  answer("10.0.0.1:8095", server("srv-1", [cluster("red", tunnel("r")), cluster("blue", tunnel("a"), tunnel("b"))])),
  answer(
    "10.0.0.2:8095",
    server("srv-2", [cluster("red"), cluster("blue", tunnel("a"), tunnel("c", { draining: true }))], {
      draining: true,
      problems: ["red.yaml: name is missing."],
    }),
  ),
  { address: "10.0.0.3:8095", problem: "10.0.0.3:8095 refuses the connection" },
];

test("servers and clusters stand in one table each, with the servers that hold a cluster and the sums of its figures", () => {
  assert.equal(
    fleetTable(THREE, fleetOf(THREE), false, NOW),
    `SERVER  ADDRESS        STATE      SERVERS  CLUSTERS  AGENTS  HELD
srv-1   10.0.0.1:8095  open       3        2 of 2    3       1.5 KiB of 1.0 GiB
srv-2   10.0.0.2:8095  draining   3        1 of 2    1       1.5 KiB of 1.0 GiB
-       10.0.0.3:8095  no status  -        -         -       -
! 10.0.0.3:8095 refuses the connection
! srv-2: red.yaml: name is missing.
! there are 3 servers, as one of them says, and 2 are shown

CLUSTER  STATE  HELD-BY       AGENTS  WAITING  OPEN  ENDED-OK  ENDED-BADLY  ENDED/S  BYTES    BYTES/S
blue     open   srv-1, srv-2  2       2        12    16        4            0.2      2.0 KiB  4 B
red      open   srv-1         1       2        3     16        4            0.2      2.0 KiB  4 B
`,
  );
});

test("of one cluster the agents are shown, too, each with its server", () => {
  const text = fleetTable(THREE, fleetOf(THREE, "blue"), true, NOW);
  const [, clusters = "", agents = ""] = text.trimEnd().split("\n\n");
  assert.equal(clusters.split("\n").length, 2);
  const cells = agents.split("\n").map((line) => line.split(/ {2,}/).slice(0, 4).join(" "));
  assert.deepEqual(cells, [
    "CLUSTER SERVER AGENT LINK",
    "blue srv-1 a up",
    "blue srv-1 b up",
    "blue srv-2 a up",
    "blue srv-2 c draining",
  ]);
});

test("a cluster that nobody holds, one that is suspended at some servers, and one with many holders", () => {
  const suspended = { ...cluster("green"), suspended: true };
  const many = Array.from({ length: 8 }, (_, i) =>
    answer(`10.0.0.${i}:8095`, server(`s${i}`, [i === 0 ? suspended : cluster("green"), cluster("wide", tunnel("a"))])),
  );
  const rows = fleetTable(many, fleetOf(many), false, NOW).split("\n\n")[1]?.split("\n") ?? [];
  const cells = rows.slice(1, 3).map((row) => row.split(/ {2,}/).slice(0, 4).join("|"));
  assert.deepEqual(cells, ["green|suspended, open|-|0", "wide|open|s0, s1, s2, s3, s4 and 3 more|1"]);
});

test("one server by two addresses counts once, and the addresses are named", () => {
  const [one, other] = ["10.0.0.1:8095", "127.0.0.1:8095"].map((address) =>
    answer(address, server("srv-1", [cluster("red", tunnel("r"))], { instance: "i" })),
  ) as [ServerAnswer, ServerAnswer];
  const fleet = fleetOf([one, other]);
  assert.deepEqual([fleet.servers.length, fleet.clusters[0]?.at.length], [1, 1]);
  assert.deepEqual(fleet.problems, ["127.0.0.1:8095 and 10.0.0.1:8095 are both server srv-1: it counts once here"]);
  assert.equal(fleetTable([one, other], fleet, false, NOW).match(/^srv-1 /gm)?.length, 1);
});

test("two servers that share an id have a row each, and what to do is said", () => {
  const said = ["10.0.0.1:8095", "10.0.0.2:8095"].map((address, i) =>
    answer(address, server("same", [cluster("red", tunnel(`a${i}`))], { instance: `i${i}`, servers: 2 })),
  );
  const text = fleetTable(said, fleetOf(said), false, NOW);
  assert.deepEqual(text.match(/^same +\S+/gm), ["same    10.0.0.1:8095", "same    10.0.0.2:8095"]);
  assert.match(text, /^! two servers share --server-id same: give each its own$/m);
  assert.match(text, /^red +open +same, same +2 /m);
});

/** The lines about problems of servers that say these numbers of servers. */
function problemsWhere(numbers: readonly (number | null)[], change: object = {}): string[] {
  const said = numbers.map((servers, i) => answer(`10.0.0.${i}:8095`, server(`s${i}`, [], { servers, ...change })));
  return fleetTable(said, fleetOf(said), false, NOW).match(/^! .*$/gm) ?? [];
}

test("a number of servers that nobody knows, or that is not that of the servers shown, is a line", () => {
  const unknown = /^! none of 3 servers knows how many there are: .* need --server-count, or --uplinks/;
  assert.match(problemsWhere([null, null, null]).join("\n"), unknown);
  assert.deepEqual(problemsWhere([null, null, null], { listeners: { peers: "127.0.0.1:8096" } }), []);
  assert.deepEqual(problemsWhere([null, 2]), []);
  assert.deepEqual(problemsWhere([3, 2, 1]), [
    "! s1 says that there are 2 servers, and 3 are shown: agents may look for too few (--server-count)",
    "! s2 says that there is 1 server, and 3 are shown: agents may look for too few (--server-count)",
  ]);
  assert.deepEqual(problemsWhere([6]), ["! there are 6 servers, as one of them says, and 1 is shown"]);
  // In an update the servers that go away are not counted.
  assert.deepEqual(problemsWhere([1, 1], { draining: true }), []);
});

test("of refusals the newest of each server is shown, of one cluster only its own, and where the others are", () => {
  const refusal = (code: string, at: string, times: number) => ({
    side: "caller",
    code,
    from: "CN=x",
    target: "10.0.0.1:22",
    reason: `it is ${code}`,
    at,
    times,
  });
  const red = { ...cluster("red"), refusals: [refusal("forbidden", "2026-06-01T11:59:00Z", 5)] };
  const own = [{ ...refusal("401", "2026-06-01T11:59:48Z", 2), side: "agent" }];
  const said = [
    answer("a:1", server("srv-1", [red], { refusals: own })),
    answer("b:1", server("srv-2", [cluster("red")])),
  ];
  const blockOf = (cluster?: string) =>
    fleetTable(said, fleetOf(said, cluster), cluster !== undefined, NOW)
      .trimEnd()
      .split("\n\n")
      .at(-1)
      ?.split("\n");
  const [heading, ...rows] = blockOf() ?? [];
  assert.match(heading ?? "", /^REFUSED-AT +TIMES +NEWEST +SIDE +CODE +REASON$/);
  assert.deepEqual(rows[0]?.split(/ {2,}/), ["srv-1", "7", "12s", "agent", "401", "it is 401"]);
  assert.match(rows[1] ?? "", /^culvert status --admin-address ADDRESS, .* lists all/);
  assert.deepEqual(blockOf("red")?.[1]?.split(/ {2,}/).slice(0, 3), ["srv-1", "5", "1m0s"]);
  const none = fleetTable(THREE, fleetOf(THREE), false, NOW);
  assert.doesNotMatch(none, /REFUSED/);
});

test("names that others chose send nothing to the terminal but print", () => {
  const evil = "\u001b]0;owned\u0007\nblue  open";
  const answers = [answer("a:1", server(evil, [cluster(evil, tunnel(evil))])), THREE[2] ?? assert.fail()];
  assert.doesNotMatch(fleetTable(answers, fleetOf(answers), true, NOW), /[^ -~\n]/);
});

/** The output of `culvert status` for these admin ports and one where nobody listens, and its exit code. */
async function shown(t: TestContext, said: readonly object[], asked: { cluster?: string; json?: boolean } = {}) {
  const adminAddresses = await Promise.all(
    said.map(async (one) => {
      const admin = createServer((_request, response) => void response.end(JSON.stringify(one)));
      return `127.0.0.1:${await listening(t, admin)}`;
    }),
  );
  let out = "";
  await runStatus({ adminAddresses, json: false, ...asked }, (text) => (out += text));
  const code = process.exitCode ?? 0;
  process.exitCode = 0;
  return { out, code, adminAddresses };
}

test("the exit code is 1 where a server has no status, and the others are shown all the same", async (t) => {
  const [one, two] = [server("srv-1", [cluster("red")]), server("srv-2", [cluster("red", tunnel("r"))])];
  const good = await shown(t, [one, two]);
  assert.equal(good.code, 0);
  assert.match(good.out, /^red +open +srv-2 +1 /m);
  const agent = await shown(t, [one, { kind: "agent", agentId: "a" }]);
  assert.equal(agent.code, 1);
  assert.match(agent.out, /^srv-1 [\s\S]*^- +127\.0\.0\.1:\d+ +no status [\s\S]*is of culvert agent: ask it alone/m);
  assert.equal((await shown(t, [one, { kind: "server", serverId: "x", clusters: [] }])).code, 1);
});

test("--json has each server's whole status, or why there is none; --cluster leaves out other clusters", async (t) => {
  const [one, two] = [server("srv-1", [cluster("red"), cluster("blue")], { later: 1 }), { kind: "router" }];
  const { out, adminAddresses } = await shown(t, [one, two], { json: true, cluster: "blue" });
  const { servers, problems } = JSON.parse(out);
  assert.deepEqual(servers[0], { address: adminAddresses[0], status: { ...one, clusters: [cluster("blue")] } });
  assert.deepEqual([servers[1].address, servers[1].problem], [adminAddresses[1], problems[0]]);
});

test("a cluster that no server has is a problem and exit code 1", async (t) => {
  const { out, code } = await shown(t, [server("srv-1", []), server("srv-2", [])], { cluster: "amber" });
  assert.equal(code, 1);
  assert.match(out, /^! no server that answers has a cluster "amber"/m);
});
