import assert from "node:assert/strict";
import { mock, test } from "node:test";
import { ClusterFigures, RecentRefusals } from "./cluster-figures.ts";

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

const AGENT = { side: "agent", code: "401", from: "10.0.0.9", reason: "no client certificate was sent" } as const;

test("the newest refusal stands first, and one that is repeated is one with a number", () => {
  const refusals = new RecentRefusals();
  refusals.add(AGENT, new Date(1_000));
  refusals.add(
    { side: "caller", code: "forbidden", from: "CN=x", target: "10.0.0.1:22", reason: "no" },
    new Date(2_000),
  );
  refusals.add(AGENT, new Date(3_000));
  assert.deepEqual(
    refusals.list().map(({ code, times, at, target }) => [code, times, at, target]),
    [
      ["401", 2, "1970-01-01T00:00:03.000Z", undefined],
      ["forbidden", 1, "1970-01-01T00:00:02.000Z", "10.0.0.1:22"],
    ],
  );
});

test("ten that differ are kept, whoever comes", () => {
  const refusals = new RecentRefusals();
  for (let port = 1; port <= 1_000; port++) refusals.add({ ...AGENT, from: `10.0.0.9:${port}` });
  assert.deepEqual(
    refusals.list().map(({ from }) => from),
    Array.from({ length: 10 }, (_, index) => `10.0.0.9:${1_000 - index}`),
  );
});

test("what an unauthenticated peer says is one printable line, and not a long one", () => {
  const refusals = new RecentRefusals();
  refusals.add({ ...AGENT, from: `\u001b[2J${"x".repeat(10_000)}`, reason: `a\nb${"y".repeat(10_000)}` });
  const [told] = refusals.list();
  assert.ok(told !== undefined && told.from.length <= 120 && told.reason.length <= 200);
  assert.doesNotMatch(told.from + told.reason, /[^ -~]/);
});
