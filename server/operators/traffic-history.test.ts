import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import type { ClusterRuntime } from "../cluster-runtime/cluster-runtime.ts";
import type { PhaseTotal } from "../metrics/server-metrics.ts";
import { TrafficHistory } from "./traffic-history.ts";

/** The figures of a cluster, as far as a history needs them. */
function clusterOf(name: string) {
  const figures = {
    carried: 0,
    connects: 0,
    outcomes: new Map<string, number>(),
    limitsHit: new Map<string, number>(),
  };
  const runtime = { cluster: { name }, tunnels: { establishedConnects: 0 }, figures };
  return runtime as typeof runtime & ClusterRuntime;
}

function historyOf(
  t: TestContext,
  clusters: readonly ClusterRuntime[],
  phaseTotals: () => readonly PhaseTotal[] = () => [],
) {
  const history = new TrafficHistory(() => clusters, phaseTotals);
  t.after(() => history.close());
  return history;
}

test("each step has what the cluster has carried and refused since the one before, and 15 minutes are kept", (t) => {
  const blue = clusterOf("blue");
  const history = historyOf(t, [blue]);
  history.take();
  for (let step = 1; step <= 70; step++) {
    blue.figures.carried += 15 * step;
    blue.figures.connects += 3;
    blue.figures.outcomes.set("ok", step);
    blue.tunnels.establishedConnects = step;
    history.take();
  }
  const { stepS, bytesPerSecond, open, failed } = history.shown("blue");
  const last60 = Array.from({ length: 60 }, (_, index) => index + 11);
  assert.deepEqual([stepS * bytesPerSecond.length, bytesPerSecond, open], [900, last60, last60]);
  assert.ok(failed.every((value) => value === 2));
});

test("the sum of all clusters ends with the last step, and clusters that are gone are forgotten", (t) => {
  const [old, young] = [clusterOf("old"), clusterOf("young")];
  const clusters = [old];
  const history = historyOf(t, clusters);
  old.tunnels.establishedConnects = 1;
  history.take();
  history.take();
  clusters.push(young);
  young.tunnels.establishedConnects = 10;
  history.take();
  assert.deepEqual(history.shown().open.slice(-4), [0, 1, 1, 11]);
  clusters.shift();
  history.take();
  assert.deepEqual(history.shown().open.slice(-3), [0, 10, 10]);
  assert.deepEqual(history.shown("old").open.slice(-1), [0]);
});

test("a limit that is hit counts at once, and for a minute", (t) => {
  const blue = clusterOf("blue");
  const history = historyOf(t, [blue]);
  history.take();
  blue.figures.limitsHit.set("streams", 2);
  assert.equal(history.limitHitsOfLate(blue), 2);
  for (let step = 0; step < 3; step++) history.take();
  assert.equal(history.limitHitsOfLate(blue), 2);
  history.take();
  assert.equal(history.limitHitsOfLate(blue), 0);
});

test("the parts of a CONNECT are means of the last 15 minutes, the CONNECTs since the last step included", (t) => {
  const dial = { phase: "dial" as const, count: 0, sum: 0 };
  const history = historyOf(t, [], () => [{ ...dial }]);
  const add = (count: number, seconds: number): void => {
    dial.count += count;
    dial.sum += seconds;
  };
  assert.deepEqual(history.phases(), [{ phase: "dial", count: 0, meanMs: 0 }]);
  add(2, 0.5);
  assert.deepEqual(history.phases(), [{ phase: "dial", count: 2, meanMs: 250 }]);
  for (let step = 0; step < 60; step++) history.take();
  add(1, 0.001);
  assert.deepEqual(history.phases(), [{ phase: "dial", count: 3, meanMs: 167 }]);
  history.take();
  assert.deepEqual(history.phases(), [{ phase: "dial", count: 1, meanMs: 1 }]);
});
