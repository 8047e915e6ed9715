import assert from "node:assert/strict";
import { mock, test } from "node:test";
import { ClusterFigures } from "./cluster-figures.ts";

/** Figures whose seconds are the test's. */
function figures(t: { after(end: () => void): void }) {
  const made = new ClusterFigures();
  t.after(() => made.close());
  return made;
}

test("the looks come by themselves until the cluster has gone", () => {
  mock.timers.enable({ apis: ["setInterval"] });
  try {
    const cluster = new ClusterFigures();
    mock.timers.tick(1_000);
    cluster.carried = 500;
    mock.timers.tick(1_000);
    assert.equal(cluster.perSecond.bytes, 500);
    cluster.close();
    cluster.carried = 5_000;
    mock.timers.tick(5_000);
    assert.equal(cluster.perSecond.bytes, 500);
  } finally {
    mock.timers.reset();
  }
});

test("rates are means of the last ten seconds, and none before the first has passed", (t) => {
  const cluster = figures(t);
  cluster.carried = 1_000;
  cluster.look();
  assert.deepEqual(cluster.perSecond, { connects: 0, bytes: 0 });
  cluster.carried = 3_000;
  cluster.connectionFinished({ outcome: "ok" });
  cluster.look();
  cluster.look();
  assert.deepEqual(cluster.perSecond, { connects: 0.5, bytes: 1_000 });
  for (let second = 0; second < 20; second++) cluster.look();
  assert.deepEqual(cluster.perSecond, { connects: 0, bytes: 0 });
});

test("CONNECTs are counted by their outcome, bytes by their direction", (t) => {
  const cluster = figures(t);
  cluster.connectionFinished({ outcome: "ok", bytesUp: 10, bytesDown: 20 });
  cluster.connectionFinished({ outcome: "ok", bytesUp: 1 });
  cluster.connectionFinished({ outcome: "limited" });
  assert.deepEqual(Object.fromEntries(cluster.outcomes), { ok: 2, limited: 1 });
  assert.deepEqual([cluster.connects, cluster.bytesUp, cluster.bytesDown], [3, 11, 20]);
});
