import assert from "node:assert/strict";
import { createServer } from "node:http";
import { type TestContext, test } from "node:test";
import { listening } from "../../shared/basics/testing/wait.ts";
import { runStatus, watchStatus } from "./status.ts";
import { agentTable, routerTable } from "./table.ts";

const MEMORY = { heldBytes: 1_024, limitBytes: 2_048 };
const CLUSTER = {
  suspended: false,
  connects: { total: 0, perSecond: 0, outcomes: {} },
  bytes: { carried: 0, perSecond: 0 },
  limits: { set: {}, hit: {} },
  refusals: [],
  tunnels: [],
};
const SERVER = {
  kind: "server",
  serverId: "srv-1",
  draining: false,
  memory: MEMORY,
  problems: [],
  refusals: [{ side: "agent", code: "401", from: "10.9.9.9", reason: "none", at: "2026-06-01T11:59:59Z", times: 1 }],
  clusters: [
    { ...CLUSTER, cluster: "blue" },
    { ...CLUSTER, cluster: "red" },
  ],
};
const AGENT = {
  kind: "agent",
  agentId: "node-1",
  pendingDials: 0,
  memory: MEMORY,
  uplinks: [
    {
      server: "wss://a.example",
      state: "connected",
      since: "2026-06-01T11:58:00Z",
      sessions: [{ serverId: "srv-1", remote: "10.0.0.1:8091", streams: 1_200, roundTripMs: 1.2, draining: false }],
    },
    { server: "wss://b.example", state: "waiting", failure: "the connection is refused", sessions: [] },
  ],
};
const ROUTER = {
  kind: "router",
  draining: false,
  connections: 3,
  faults: ["/r/a.yaml: to is empty"],
  routes: [{ route: "blue.example", sni: ["blue.example", "b.example"], backends: 2, sendProxy: "v2" }],
  backends: [{ backend: "10.0.0.1:8091", state: "untried", connections: 0 }],
};

/** An admin port that says this; what `culvert status` is asked with for it. */
async function saying(t: TestContext, said: () => object) {
  const server = createServer((_request, response) => void response.end(JSON.stringify(said())));
  return { adminAddresses: [`127.0.0.1:${await listening(t, server)}`], json: false };
}

/** The output, the complaints and the exit code of the command. */
async function shown(t: TestContext, said: object, asked: { json?: boolean; cluster?: string } = {}) {
  let [out, err] = ["", ""];
  const write = t.mock.method(process.stderr, "write", (text: string) => {
    err += text;
    return true;
  });
  await runStatus({ ...(await saying(t, () => said)), ...asked }, (text) => (out += text));
  write.mock.restore();
  const code = process.exitCode ?? 0;
  process.exitCode = 0;
  return { out, err, code };
}

test("the status of an agent is its uplinks, after what hinders them", async (t) => {
  const lines = agentTable(AGENT, new Date("2026-06-01T12:00:00Z")).trimEnd().split("\n");
  assert.equal(lines[0], "agent node-1: tunnels hold 1.0 KiB of 2.0 KiB, 0 targets being dialled");
  assert.equal(lines[1], "! wss://b.example: the connection is refused");
  assert.match(lines[3] ?? "", /^SERVER +STATE +SERVER-ID +ADDRESS +SINCE +RTT +RATE +STREAMS$/);
  assert.match(lines[4] ?? "", /^wss:\/\/a\.example +connected +srv-1 +10\.0\.0\.1:8091 +2m0s +1\.2 ms +- +1,200$/);
  assert.match(lines[5] ?? "", /^wss:\/\/b\.example +waiting +- +- +- +- +- +-$/);
  assert.match((await shown(t, AGENT)).out, /^agent node-1: /);
});

test("the status of a router is its routes and backends, after the faults of its routes", async (t) => {
  const { out } = await shown(t, ROUTER);
  assert.equal(out, routerTable(ROUTER));
  assert.match(out, /^router: 3 connections\n! \/r\/a\.yaml: to is empty\n\nROUTE/);
  assert.match(routerTable({ ...ROUTER, connections: 1 }), /^router: 1 connection\n/);
  assert.match(out, /^blue\.example +2 +v2 +blue\.example, b\.example$/m);
  assert.match(out, /^10\.0\.0\.1:8091 +untried +0$/m);
});

test("--cluster shows that cluster alone, as a table and as JSON", async (t) => {
  const { out } = await shown(t, SERVER, { cluster: "red" });
  assert.match(out, /^red +open/m);
  assert.doesNotMatch(out, /blue|10\.9\.9\.9/);
  const json = JSON.parse((await shown(t, SERVER, { cluster: "red", json: true })).out);
  assert.deepEqual([json.clusters.length, json.clusters[0].cluster], [1, "red"]);
});

test("a cluster that is not there is a sentence with the nearest, and one of no server is reported as such", async (t) => {
  const unknown = await shown(t, SERVER, { cluster: "bleu" });
  assert.deepEqual(
    [unknown.code, unknown.out, unknown.err],
    [1, "", 'culvert status: the server has no cluster "bleu": did you mean blue?\n'],
  );
  assert.match((await shown(t, SERVER, { cluster: "amber" })).err, /"amber": culvert status without --cluster shows/);
  assert.match(
    (await shown(t, AGENT, { cluster: "blue" })).err,
    /--cluster is for a server, and this is .* culvert agent/,
  );
});

test("a status of another version names the field that is missing", async (t) => {
  assert.match((await shown(t, { kind: "agent", agentId: "a" })).err, /the agent has another version, .* pendingDials/);
});

test("--watch repaints a terminal, is a line of JSON each time, and ends when it is told to", async (t) => {
  let asked = 0;
  const where = await saying(t, () => ({ ...SERVER, asked: ++asked }));
  for (const [json, isTerminal, first] of [
    [false, true, "\x1b[H\x1b[2J\x1b[3Jserver srv-1: "],
    [false, false, "server srv-1: "],
    [true, true, '{"kind":"server",'],
  ] as const) {
    const stop = new AbortController();
    const pages: string[] = [];
    await watchStatus({ ...where, json }, { stop: stop.signal, isTerminal, everyMs: 1 }, (text) => {
      pages.push(text);
      if (pages.length === 3) stop.abort();
    });
    assert.equal(pages.length, 3);
    for (const page of pages) assert.ok(page.startsWith(first), page);
    if (json)
      assert.deepEqual(
        pages.map((page) => JSON.parse(page).asked - asked),
        [-2, -1, 0],
      );
  }
});

test("--watch goes on while nobody answers", async (t) => {
  let asked = 0;
  const where = await saying(t, () => (++asked === 1 ? {} : SERVER));
  const complaints = t.mock.method(process.stderr, "write", () => true);
  const stop = new AbortController();
  let out = "";
  await watchStatus(where, { stop: stop.signal, isTerminal: false, everyMs: 1 }, (text) => {
    out += text;
    stop.abort();
  });
  assert.equal(complaints.mock.callCount(), 1);
  assert.match(out, /^server srv-1/);
});
