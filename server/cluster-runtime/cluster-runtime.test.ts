import assert from "node:assert/strict";
import { test } from "node:test";
import { until } from "../../shared/basics/testing/wait.ts";
import { CulvertError } from "../../shared/outcomes.ts";
import { TargetRules } from "../clusters/access-rules.ts";
import type { ClusterChanges } from "../clusters/cluster.ts";
import { Destinations } from "../clusters/destinations.ts";
import { contextOf } from "../tunnels/testing/context.ts";
import type { ClusterRuntime } from "./cluster-runtime.ts";
import { clusterOf, runtimeOf } from "./testing/clusters.ts";

const TARGET = { host: "10.0.0.1", port: 10_250 };
const LIMITS_CHANGED = { limits: true } as ClusterChanges;

function refusal(served: ClusterRuntime, target = TARGET): CulvertError | undefined {
  try {
    served.requireAdmission(target);
    return undefined;
  } catch (error) {
    assert.ok(error instanceof CulvertError);
    return error;
  }
}

test("without limits and rules every target is admitted", () => {
  assert.equal(refusal(runtimeOf(clusterOf("blue"))), undefined);
});

test("a cluster that is suspended admits nobody, agents nor callers", () => {
  const served = runtimeOf(clusterOf("blue", { suspended: true }));
  assert.match(refusal(served)?.message ?? "", /^cluster "blue" is suspended$/);
  assert.match(served.agents.objection("10.0.0.1")?.message ?? "", /suspended/);
});

test("a target against the rules is forbidden before anything is counted", () => {
  const served = runtimeOf(
    clusterOf("blue", { targets: new TargetRules([], ["10.0.0.0/8"]), limits: { connectsPerSecond: 0.5 } }),
  );
  for (let attempt = 0; attempt < 10; attempt++) assert.equal(refusal(served)?.code, "forbidden");
  assert.equal(refusal(served, { host: "192.0.2.1", port: 443 }), undefined);
});

test("what an agent asks for is a destination of its cluster, and counts against the limits as a CONNECT does", () => {
  const destinations = new Destinations(["10.0.0.1:10250"]);
  const limits = { connectsPerSecond: 2 };
  const served = runtimeOf(clusterOf("blue", { destinations, limits, targets: new TargetRules([], ["10.0.0.0/8"]) }));
  assert.throws(() => served.requireDestination({ host: "10.0.0.1", port: 443 }), /not among the allowed destinations/);
  for (let admitted = 0; admitted < 4; admitted++) served.requireDestination(TARGET);
  assert.throws(() => served.requireDestination(TARGET), /limits\.connectsPerSecond/);
  const suspended = runtimeOf(clusterOf("blue", { destinations, suspended: true }));
  assert.throws(() => suspended.requireDestination(TARGET), /is suspended/);
});

test("CONNECTs beyond the limit are refused with a time to come back", () => {
  const served = runtimeOf(clusterOf("blue", { limits: { connectsPerSecond: 2 } }));
  const refused = Array.from({ length: 6 }, () => refusal(served)).filter((error) => error !== undefined);
  assert.ok(refused.length >= 1 && refused.length <= 2, `${refused.length} of 6: a burst of 4 is let through`);
  assert.equal(refused[0]?.code, "limited");
  assert.ok((refused[0]?.retryAfterMs ?? 0) > 0);
  assert.match(refused[0]?.message ?? "", /limits\.connectsPerSecond/);
});

test("a limited number of CONNECTs may wait for an answer", () => {
  const served = runtimeOf(clusterOf("blue", { limits: { pendingConnects: 2 } }));
  served.tunnels.pendingConnects = 1;
  assert.equal(refusal(served), undefined);
  served.tunnels.pendingConnects = 2;
  assert.match(refusal(served)?.message ?? "", /limits\.pendingConnects/);
  served.tunnels.ofPeers.pending = 1; // admitted by the server that it came to
  assert.equal(refusal(served), undefined);
});

test("the TLS handshakes of agents use up nothing of the callers' limit", () => {
  const served = runtimeOf(clusterOf("blue", { limits: { handshakesPerSecond: 1 } }));
  const takes = (side: "agents" | "callers") => served[side].handshakes.budgetFor("192.0.2.1").take();
  assert.deepEqual([takes("agents"), takes("agents"), takes("agents")], [true, true, false]);
  assert.deepEqual([takes("callers"), takes("callers"), takes("callers")], [true, true, false]);
  assert.match(served.agents.handshakes.budgetFor("192.0.2.1").exhausted ?? "", /limits\.handshakesPerSecond/);
  assert.equal(served.figures.limitsHit.get("handshakesPerSecond"), 2);
});

test("a new document brings its own limits at once", () => {
  const served = runtimeOf(clusterOf("blue", { limits: { connectsPerSecond: 0.001 } }));
  assert.equal(refusal(served), undefined);
  assert.equal(refusal(served)?.code, "limited");
  served.update(clusterOf("blue"), LIMITS_CHANGED);
  assert.equal(refusal(served), undefined);
});

test("a refusal and a new document are noted for one who wants to know", () => {
  const context = contextOf();
  const served = runtimeOf(clusterOf("blue"), {}, context);
  context.tunnels.changed = new Set();
  served.figures.refusals.add({ side: "caller", code: "forbidden", from: "10.0.0.1", reason: "not allowed" });
  assert.deepEqual([...context.tunnels.changed], ["blue"]);
  context.tunnels.changed = new Set();
  served.update(clusterOf("blue"), LIMITS_CHANGED);
  assert.deepEqual([...context.tunnels.changed], ["blue"]);
});

test("a cluster that holds more than limits.memory for readers that move is slowed down, and refused in its own words", async () => {
  const served = runtimeOf(clusterOf("blue", { limits: { memory: 1_048_576 } }));
  const { memory } = served.tunnels;
  assert.equal(served.pace(65_536), 0);
  memory.hold(1_048_577);
  assert.deepEqual([served.pace(500), served.pace(65_536)], [0.5, 65.536], "ms");
  assert.equal(refusal(served), undefined, "it may be over in a moment");
  await until(() => refusal(served) !== undefined);
  assert.equal(refusal(served)?.code, "limited");
  assert.equal(
    refusal(served)?.message,
    'cluster "blue" is at its limit: its connections hold too much for slow readers (limits.memory)',
  );
  memory.hold(-1);
  assert.equal(refusal(served), undefined);
  assert.equal(served.pace(65_536), 0);
  served.close();
});

test("each limit that turns a CONNECT away, or slows bytes down, is counted by its name", () => {
  const served = runtimeOf(clusterOf("blue", { limits: { pendingConnects: 1, bytesPerSecond: 65_536 } }));
  served.tunnels.pendingConnects = 1;
  for (let attempt = 0; attempt < 3; attempt++) assert.equal(refusal(served)?.code, "limited");
  assert.equal(served.pace(1_000), 0);
  assert.ok(served.pace(1_000_000) > 0);
  assert.deepEqual(Object.fromEntries(served.figures.limitsHit), { pendingConnects: 3, bytesPerSecond: 1 });
  assert.equal(served.figures.carried, 1_001_000);
  served.close();
});

test("connections over other servers count against the limit of the cluster, where its callers are", () => {
  const served = runtimeOf(clusterOf("blue", { limits: { streams: 2 } }));
  served.tunnels.hopStreams = 1;
  assert.equal(refusal(served), undefined);
  served.tunnels.hopStreams = 2;
  assert.match(refusal(served)?.message ?? "", /2 connections are open \(limits\.streams\)/);
});
