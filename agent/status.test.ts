import assert from "node:assert/strict";
import { test } from "node:test";
import type { UplinkStateName } from "./context/metrics.ts";
import { readiness, status, type UplinksSummary } from "./status.ts";

const summaryOf = (...states: UplinkStateName[]): UplinksSummary => {
  const uplinks = states.map((state) => ({ state: { state } }));
  return { uplinks, wanted: uplinks.length, servers: undefined };
};

const inJson = (shown: unknown): unknown => JSON.parse(JSON.stringify(shown));

test("any, more than half, or all of the servers make an agent ready, as its operator says", () => {
  const [on, off] = ["connected", "waiting"] as const;
  for (const [states, ready] of [
    [[on], { any: true, quorum: true, all: true }],
    [[off], { any: false, quorum: false, all: false }],
    [[on, off], { any: true, quorum: false, all: false }],
    [[on, off, on], { any: true, quorum: true, all: false }],
    [[off, off, on], { any: true, quorum: false, all: false }],
    [[on, off, on, off], { any: true, quorum: false, all: false }],
    [[on, on, on], { any: true, quorum: true, all: true }],
  ] as const) {
    for (const rule of ["any", "quorum", "all"] as const) {
      assert.equal(readiness(summaryOf(...states), rule)[0]?.ok, ready[rule], `${states} by ${rule}`);
    }
  }
});

test("readiness says how many servers there are, how many are wanted and connected, and what a rule that fails needs", () => {
  assert.deepEqual(readiness({ ...summaryOf("connected", "connected"), servers: 3 }, "all")[0], {
    name: "servers",
    ok: true,
    detail: "connected 2 of 2 wanted (servers: 3)",
  });
  assert.deepEqual(readiness(summaryOf("connected", "connecting"), "quorum"), [
    { name: "servers", ok: false, detail: "connected 1 of 2 wanted; --readiness=quorum needs 2" },
    { name: "not-draining", ok: true },
  ]);
});

test("an uplink that is being resumed counts, and is told apart", () => {
  const [servers] = readiness(summaryOf("connected", "suspended"), "all");
  assert.deepEqual(servers, { name: "servers", ok: true, detail: "connected 1 of 2 wanted, resuming 1" });
  assert.equal(readiness(summaryOf("suspended"), "any")[0]?.ok, true);
});

test("an agent that drains is not ready, however many servers it has", () => {
  const [, draining] = readiness(summaryOf("draining", "closed"), "any");
  assert.deepEqual(draining, { name: "not-draining", ok: false });
});

test("status says what it is of, since when an uplink is connected, and why it is not", () => {
  const path = { ageLimitMs: undefined, heldBackMs: undefined };
  const one = { server: "wss://a", path, failure: undefined, connections: () => [] };
  const uplinks = [
    { ...one, state: { state: "connected" as const, sinceMs: performance.now() - 60_000 } },
    { ...one, state: { state: "waiting" as const }, failure: "nobody listens" },
  ];
  const shown = inJson(status("a1", { uplinks, wanted: 2, servers: 3 }, 0, {})) as {
    kind: string;
    uplinks: { since?: string; failure?: string }[];
  };
  assert.equal(shown.kind, "agent");
  const [connected, waiting] = shown.uplinks;
  const age = Date.now() - Date.parse(connected?.since ?? "");
  assert.ok(age >= 59_000, `${age} ms`);
  assert.equal(waiting?.since, undefined);
  assert.deepEqual(
    [connected, waiting].map((each) => each?.failure),
    [undefined, "nobody listens"],
  );
});

test("status shows of each path what it has shown, and no limit that nobody has seen", () => {
  const paths = [
    { ageLimitMs: 3_600_000.7, heldBackMs: 1_200.4 },
    { ageLimitMs: undefined, heldBackMs: undefined },
  ];
  const uplinks = paths.map((path, index) => ({
    server: `wss://${index}`,
    path,
    failure: undefined,
    connections: () => [],
    state: { state: "connected" as const },
  }));
  const shown = inJson(status("a1", { uplinks, wanted: 2, servers: 3 }, 0, {})) as { uplinks: unknown[] };
  assert.deepEqual(shown.uplinks, [
    {
      server: "wss://0",
      state: "connected",
      sessions: [],
      path: { ageLimitMs: 3_600_001, heldBackMs: 1_200 },
    },
    { server: "wss://1", state: "connected", sessions: [], path: {} },
  ]);
});
