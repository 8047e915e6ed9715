import assert from "node:assert/strict";
import { test } from "node:test";
import type { ClusterFact, ClusterState } from "../server/operators/facts.ts";
import { FIRST_VIEW, shownClusters, stateCounts } from "./clusters.ts";

function fact(cluster: string, state: ClusterState, more: Partial<ClusterFact> = {}): ClusterFact {
  const counts = { agents: 1, suspendedLinks: 0, losses: 0, open: 0, pending: 0, failed: 0, limitHits: 0 };
  return { cluster, state, ...counts, connectsPerSecond: 0, bytesPerSecond: 0, refusedAt: null, ...more };
}

const ALL = [
  fact("blue-2", "ok", { bytesPerSecond: 7 }),
  fact("blue-1", "ok", { refusedAt: "2026-01-01T00:00:00Z" }),
  fact("red", "no_agent"),
  fact("grey", "suspended"),
  fact("green", "link_lost"),
];

const names = (view: Partial<typeof FIRST_VIEW> = {}) =>
  shownClusters(ALL, { ...FIRST_VIEW, ...view }).map(({ cluster }) => cluster);

test("the worst clusters come first, and those that are alike by their names", () => {
  assert.deepEqual(names(), ["red", "green", "blue-1", "blue-2", "grey"]);
  assert.deepEqual(names({ descending: true }), ["grey", "blue-1", "blue-2", "green", "red"]);
});

test("a list is sorted by what a column shows, and a cluster without a refusal counts as the oldest", () => {
  assert.deepEqual(names({ sort: "bytesPerSecond", descending: true })[0], "blue-2");
  assert.deepEqual(names({ sort: "refusedAt", descending: true })[0], "blue-1");
  assert.deepEqual(names({ sort: "cluster" })[0], "blue-1");
});

test("each word of a search must be in the name, in whatever case, and a state leaves out the others", () => {
  assert.deepEqual(names({ search: " BLUE 2" }), ["blue-2"]);
  assert.deepEqual(names({ search: "re", state: "link_lost" }), ["green"]);
  assert.deepEqual(names({ search: "none" }), []);
});

test("states that no cluster is in are not offered", () => {
  assert.deepEqual(stateCounts(ALL), [
    ["no_agent", 1],
    ["link_lost", 1],
    ["ok", 2],
    ["suspended", 1],
  ]);
});
