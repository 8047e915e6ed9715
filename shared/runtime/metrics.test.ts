import assert from "node:assert/strict";
import { test } from "node:test";
import { Histogram, Registry } from "prom-client";
import { buildInfo } from "../basics/program.ts";
import { MemoryPool } from "../limits/memory-pool.ts";
import { MemoryMetrics } from "./common-metrics.ts";
import { HistogramMetric, Instruments, LabelledMetric } from "./metrics.ts";

test("numbers are read when somebody scrapes, under every name they have", async () => {
  const make = new Instruments({ processMetrics: false });
  const tally = make.counter(["a_total", "alias_a_total"], "A.");
  const labelled = make.counters("b_total", "B.", ["x", "y"]);
  let depth = 1;
  make.gauge(["c"], "C.", () => depth);
  make.gauges("d", "D.", ["z"], () => [[["1"], depth]]);
  tally.add();
  tally.add(2);
  labelled.add(5, "p", "q");
  await make.registry.metrics();
  depth = 7;
  const text = await make.registry.metrics();
  for (const line of ["a_total 3", "alias_a_total 3", 'b_total{x="p",y="q"} 5', "c 7", 'd{z="1"} 7']) {
    assert.ok(text.split("\n").includes(line), `${line} in\n${text}`);
  }
});

test("label values that an unauthenticated peer invents end in one common series", () => {
  const tally = new LabelledMetric(2);
  for (let i = 0; i < 60_000; i++) tally.add(1, `cluster-${i}`, "ok");
  const values = () => new Map([...tally].map(([labels, value]) => [labels.join(), value]));
  assert.equal(values().size, 50_001);
  assert.equal(values().get("other,other"), 10_000);
  tally.add(1, "cluster-0", "ok");
  assert.equal(values().get("cluster-0,ok"), 2);
});

test("the process and its event loop are measured, on a registry of their own", async () => {
  const one = await new Instruments().registry.metrics();
  assert.match(one, /^process_resident_memory_bytes \d+$/m);
  assert.match(one, /^nodejs_eventloop_lag_p99_seconds /m);
  const two = await new Instruments({ processMetrics: false }).registry.metrics();
  assert.doesNotMatch(two, /process_/);
});

test("a number for each cluster is one number for all where no cluster is named", async () => {
  const make = new Instruments({ processMetrics: false });
  const values = new Map([
    ["blue", 1],
    ["green", 0],
  ]);
  make.gaugeByCluster("agents", "Agents.", () => values);
  make.gaugeByCluster(
    "open",
    "Open.",
    () => values,
    () => 5,
  );
  const [all, some] = [await make.registry.metrics(), await make.withoutNames.metrics()];
  for (const line of ['agents{cluster="green"} 0', 'open{cluster="blue"} 1'])
    assert.ok(all.split("\n").includes(line), all);
  for (const line of ["agents 1", "open 5"]) assert.ok(some.split("\n").includes(line), some);
});

test("the build says its version, its revision and its Node.js, on both kinds of ports", async () => {
  const make = new Instruments();
  const { version, revision, node } = buildInfo();
  const line = `culvert_build_info{version="${version}",revision="${revision}",node="${node}"} 1`;
  assert.match(version, /^\d+\.\d+\.\d+/);
  for (const registry of [make.registry, make.withoutNames]) {
    const text = await registry.metrics();
    assert.ok(text.split("\n").includes(line), `${line} in\n${text}`);
  }
});

test("what names clusters or routes is left out where no names are to be shown, and nothing else", async () => {
  const make = new Instruments({ processMetrics: true });
  make.counter(["connects_total"], "Connects.").add(2);
  make.counters("dials_total", "Dials.", ["reason"]).add(1, "timeout");
  make.counters("bytes_total", "Bytes.", ["cluster", "direction"]).add(1, "blue", "up");
  make.gauges("routes", "Routes.", ["route"], () => [[["blue"], 1]]);
  make.histogram("dial_seconds", "Dials.", [1]).observe(0.5);
  const [all, some] = [await make.registry.metrics(), await make.withoutNames.metrics()];
  const families = (text: string): string[] => [...text.matchAll(/^# TYPE (\S+)/gm)].map(([, name = ""]) => name);
  assert.deepEqual(
    families(all).filter((name) => !families(some).includes(name)),
    ["bytes_total", "routes"],
  );
  assert.ok(families(some).includes("nodejs_eventloop_lag_seconds"));
  assert.match(some, /^connects_total 2$/m);
  assert.doesNotMatch(some, /blue/);
});

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

test("a cluster that was removed and has come back is one figure: what both hold", async () => {
  const instruments = new Instruments({ processMetrics: false });
  const metrics = new MemoryMetrics(instruments, "server");
  const pool = new MemoryPool(1e9);
  metrics.watch(pool);
  const before = pool.share("blue");
  before.hold(5_000);
  before.close();
  pool.share("blue").hold(7);
  const text = await instruments.registry.metrics();
  assert.match(text, /^culvert_server_memory_held_bytes\{cluster="blue"\} 5007$/m);
});
