import assert from "node:assert/strict";
import { test } from "node:test";
import type { ClusterRuntime } from "../cluster-runtime/cluster-runtime.ts";
import { RecentRefusals } from "../metrics/cluster-figures.ts";
import { PageFacts, type PageSource } from "./page-facts.ts";

const CLUSTERS = 120;

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

type IdleCluster = ReturnType<typeof idleCluster>;

function idleClusters(): IdleCluster[] {
  return Array.from({ length: CLUSTERS }, (_, index) => idleCluster(`c${index}`));
}

function factsOf(clusters: readonly IdleCluster[]) {
  const get = (wanted: string) => clusters.find(({ cluster: { name } }) => name === wanted);
  const served = { clusters: { all: () => clusters as unknown as ClusterRuntime[], get }, store: {} };
  const view = { served, others: {}, ending: () => false, shownAddresses: () => ({}) };
  const tunnels = {
    changed: undefined as Set<string> | undefined,
    clusters: { keys: () => clusters.map(({ cluster: { name } }) => name) },
  };
  const context = {
    options: { serverId: "a", adminPeers: [] },
    servers: { value: undefined },
    pool: { report: () => ({}) },
    metrics: { refusals: new RecentRefusals() },
    tunnels,
  };
  const history = { steps: 0, shown: () => ({}), phases: () => ({}), limitHitsOfLate: () => 0 };
  const source = { view, context, history, instance: "a", ownProblems: () => [] };
  const facts = new PageFacts(source as unknown as PageSource);
  return Object.assign(() => new Map(facts.all()), { stop: () => facts.stop(), tunnels });
}

function lookedAt(facts: Map<string, unknown>): string[] {
  return [...facts.keys()].filter((key) => key.startsWith("cluster/"));
}

test("the first message has all clusters, and each of the next ones looks at as many others as callers do not feel", () => {
  const next = factsOf(idleClusters());
  const first = next();
  assert.equal(lookedAt(first).length, CLUSTERS);
  assert.equal((first.get("problems") as string[]).length, CLUSTERS);
  const turn = [next(), next(), next()].map(lookedAt);
  assert.deepEqual(
    turn.map(({ length }) => length),
    [50, 50, 20],
  );
  assert.equal(new Set(turn.flat()).size, CLUSTERS);
});

test("a cluster that has changed is looked at for the next message, wherever it is in the turn, and once", () => {
  const next = factsOf(idleClusters());
  next();
  next.tunnels.changed?.add("c119");
  const messages = [next(), next()].map(lookedAt);
  assert.deepEqual(
    messages.map((keys) => keys.includes("cluster/c119")),
    [true, false],
  );
});

test("a new cluster and one that is gone are in the next message", () => {
  const clusters = idleClusters();
  const next = factsOf(clusters);
  next();
  clusters.push(idleCluster("new"));
  clusters.shift();
  for (const name of ["new", "c0"]) next.tunnels.changed?.add(name);
  const messages = [next(), next(), next(), next()];
  assert.equal(messages[0]?.get("cluster/c0"), undefined);
  const [withNew, gone] = ["new", "c0"].map((name) => messages.map((facts) => facts.has(`cluster/${name}`)));
  assert.deepEqual(withNew, [true, false, false, false]); // the turn that has begun is without it
  assert.deepEqual(gone, [true, false, false, false]);
});

test("nothing is noted before the first reader, and after the last one", () => {
  const next = factsOf(idleClusters());
  const noted = [next.tunnels.changed];
  next();
  noted.push(next.tunnels.changed);
  next.stop();
  noted.push(next.tunnels.changed);
  assert.deepEqual(noted, [undefined, new Set(), undefined]);
});

test("after the last reader has gone in the middle of a turn, the first message has all clusters again", () => {
  const next = factsOf(idleClusters());
  next();
  next(); // a part of the next turn
  next.stop();
  const first = next();
  assert.equal(lookedAt(first).length, CLUSTERS);
  assert.equal((first.get("problems") as string[]).length, CLUSTERS);
});

test("lists are made again when all clusters were looked at, and else for each fifth message", () => {
  const clusters = Array.from({ length: 1_000 }, (_, index) => idleCluster(`c${index}`));
  const next = factsOf(clusters);
  const hasLists = () => next().has("refusals");
  assert.deepEqual(Array.from({ length: 7 }, hasLists), [true, true, false, false, false, false, true]);
});
