import assert from "node:assert/strict";
import { test } from "node:test";
import { table } from "./report.ts";
import { above, atLeast, atMost, below, Rounds } from "./rows.ts";
import { readSettings } from "./settings.ts";
import { median, percentile } from "./stats.ts";

test("percentiles are by nearest rank, and of nothing there is none", () => {
  const hundred = Array.from({ length: 100 }, (_, i) => 100 - i);
  assert.equal(percentile(hundred, 50), 50);
  assert.equal(percentile(hundred, 99), 99);
  assert.equal(percentile([7], 99), 7);
  assert.ok(Number.isNaN(percentile([], 50)));
});

test("a median is the middle one, or between the two middle ones", () => {
  assert.equal(median([3, 1, 2]), 2);
  assert.equal(median([4, 1, 2, 3]), 2.5);
  assert.ok(Number.isNaN(median([])));
});

test("a goal is met, missed, or unknown where culvert or the floor was not measured", () => {
  const figures = { culvert: 90, pipe: 100 };
  assert.equal(atLeast(figures, 0.9, "pipe").met, true);
  assert.equal(atLeast(figures, 0.91, "pipe").met, false);
  assert.equal(atMost(figures, 0.9, "pipe").met, true);
  assert.equal(atMost(figures, 0.89, "pipe").met, false);
  assert.equal(atLeast(figures, 1, "corked").met, undefined);
  assert.equal(below(figures, 89, "ms").met, false);
  assert.equal(below({}, 89, "ms").met, undefined);
  assert.equal(above(figures, 90, "%").met, true);
  assert.equal(above(figures, 91, "%").met, false);
  assert.equal(above({}, 91, "%").met, undefined);
});

test("rounds give the median of each contender that took part", () => {
  const rounds = new Rounds();
  for (const value of [1, 9, 5]) rounds.add("pipe", "idle p50", value);
  rounds.add("culvert", "idle p50", 4);
  rounds.add("culvert", "p50", 100);
  assert.deepEqual(rounds.medians("idle p50"), { pipe: 5, culvert: 4 });
});

test("the table shows figures, goals and their marks", () => {
  const figures = { culvert: 400, pipe: 500 };
  const goals = [atLeast(figures, 1, "pipe"), atLeast(figures, 0.85, "corked")];
  const text = table([{ group: "throughput", label: "down", unit: "MB/s", figures, goals }]);
  assert.match(text, /down\s+MB\/s\s+400\s+500\s+✗ 0\.80 ≥ 1× pipe {3}· \? ≥ 0\.85× corked/);
});

test("settings refuse what they do not know", () => {
  assert.deepEqual(readSettings(["--only", "latency,start"]).only, ["latency", "start"]);
  assert.throws(() => readSettings(["--only", "speed"]), /no group "speed"/);
  assert.throws(() => readSettings(["--seconds", "none"]), /--seconds wants a number/);
});
