import assert from "node:assert/strict";
import { test } from "node:test";
import type { ClusterRuntime } from "../cluster-runtime/cluster-runtime.ts";
import { RecentRefusals } from "../metrics/cluster-figures.ts";
import { PageFacts, type PageSource } from "./page-facts.ts";

const CLUSTERS = 450;

/** A cluster without agents, as far as the list of clusters looks at it. */
function idleCluster(name: string) {
  const refusals = new RecentRefusals();
  const tunnels = { tunnels: () => [], establishedConnects: 0, pendingConnects: 0 };
  const figures = {
    connects: 0,
    outcomes: new Map(),
    limitsHit: new Map(),
    perSecond: { connects: 0, bytes: 0 },
    refusals,
  };
  return { cluster: { name }, tunnels, figures, expiring: () => [], problems: () => [`${name} is old`] };
}

function factsOf(clusters: readonly ReturnType<typeof idleCluster>[]) {
  const get = (wanted: string) => clusters.find(({ cluster: { name } }) => name === wanted);
  const served = { clusters: { all: () => clusters as unknown as ClusterRuntime[], get }, store: {} };
  const view = { served, others: {}, ending: () => false, shownAddresses: () => ({}) };
  const context = {
    options: { serverId: "a", adminPeers: [] },
    servers: { value: undefined },
    pool: { report: () => ({}) },
    metrics: { refusals: new RecentRefusals() },
  };
  const history = { steps: 0, shown: () => ({}), phases: () => ({}), limitHitsOfLate: () => 0 };
  const source = { view, context, history, instance: "a", ownProblems: () => [] };
  const facts = new PageFacts(source as unknown as PageSource);
  return Object.assign(() => new Map(facts.all()), { stop: () => facts.stop() });
}

function lookedAt(facts: Map<string, unknown>): string[] {
  return [...facts.keys()].filter((key) => key.startsWith("cluster/"));
}

test("the first message has all clusters, and each of the next ones looks at as many others as callers do not feel", () => {
  const clusters = Array.from({ length: CLUSTERS }, (_, index) => idleCluster(`c${index}`));
  const next = factsOf(clusters);
  const first = next();
  assert.equal(lookedAt(first).length, CLUSTERS);
  assert.equal((first.get("problems") as string[]).length, CLUSTERS);
  const round = [next(), next(), next()].map(lookedAt);
  assert.deepEqual(
    round.map(({ length }) => length),
    [200, 200, 50],
  );
  assert.equal(new Set(round.flat()).size, CLUSTERS);
});

test("new clusters are the first that are looked at when all others were, and one that is gone is said to be", () => {
  const clusters = Array.from({ length: CLUSTERS }, (_, index) => idleCluster(`c${index}`));
  const next = factsOf(clusters);
  next(); // the first message
  next(); // a part of the next turn
  clusters.push(idleCluster("new"));
  clusters.shift();
  const messages = Array.from({ length: 6 }, next);
  const withNew = messages.flatMap((facts, index) => (facts.has("cluster/new") ? [index] : []));
  const gone = messages.flatMap((facts, index) => (facts.has("cluster/c0") ? [index] : []));
  assert.deepEqual([withNew, gone], [[2, 5], [2]]);
  assert.equal(messages[2] && lookedAt(messages[2])[0], "cluster/new");
  assert.equal(messages[2]?.get("cluster/c0"), undefined);
});

test("after the last reader has gone in the middle of a turn, the first message has all clusters again", () => {
  const clusters = Array.from({ length: CLUSTERS }, (_, index) => idleCluster(`c${index}`));
  const next = factsOf(clusters);
  next();
  next(); // a part of the next turn
  next.stop();
  const first = next();
  assert.equal(lookedAt(first).length, CLUSTERS);
  assert.equal((first.get("problems") as string[]).length, CLUSTERS);
});

test("lists are made again when all clusters were looked at", () => {
  const clusters = Array.from({ length: CLUSTERS }, (_, index) => idleCluster(`c${index}`));
  const next = factsOf(clusters);
  next();
  clusters[0]?.figures.refusals.add({ side: "caller", code: "403", from: "10.0.0.1", reason: "not allowed" });
  const lengths = [next(), next(), next()].map((facts) => (facts.get("refusals") as unknown[] | undefined)?.length);
  assert.deepEqual(lengths, [undefined, undefined, 1]);
});
