import assert from "node:assert/strict";
import { test } from "node:test";
import { Histogram, Registry } from "prom-client";
import { HistogramMetric } from "./histogram-metric.ts";

const BUCKETS = [0.001, 0.5, 1, 10];
const VALUES = [0, 0.001, 0.0011, 0.5, 0.7, 1, 9.5, 10, 11, 1e6];

test("a histogram is scraped as one of prom-client with the same values", async () => {
  const [ours, theirs] = [new Registry(), new Registry()];
  const one = new HistogramMetric("dial_seconds", "Dials.", BUCKETS);
  one.registerIn([ours]);
  const series = one.series();
  const expected = new Histogram({ name: "dial_seconds", help: "Dials.", buckets: BUCKETS, registers: [theirs] });
  for (const value of VALUES) {
    series.observe(value);
    expected.observe(value);
  }
  assert.equal(await ours.metrics(), await theirs.metrics());
});

test("a histogram with a label has a series for each of its values", async () => {
  const [ours, theirs] = [new Registry(), new Registry()];
  const all = new HistogramMetric("dial_seconds", "Dials.", BUCKETS, "outcome");
  all.registerIn([ours]);
  const labelNames = ["outcome"];
  const expected = new Histogram({
    name: "dial_seconds",
    help: "Dials.",
    labelNames,
    buckets: BUCKETS,
    registers: [theirs],
  });
  for (const [index, outcome] of ["ok", "dial_refused", "ok"].entries()) {
    all.series(outcome).observe(index);
    expected.observe({ outcome }, index);
  }
  const lines = async (registry: Registry) => (await registry.metrics()).split("\n").map(sortedLabels).sort();
  assert.deepEqual(await lines(ours), await lines(theirs));
});

/** The order of labels has no meaning. */
function sortedLabels(line: string): string {
  return line.replace(/\{(.*)\}/, (_, labels: string) => labels.split(",").sort().join(","));
}
