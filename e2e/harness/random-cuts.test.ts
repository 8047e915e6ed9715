import assert from "node:assert/strict";
import { test } from "node:test";
import { Random } from "./random.ts";
import { nextCut, type PlannedCut } from "./random-cuts.ts";

function blows(seed: number, count: number): PlannedCut[] {
  const options = { random: new Random(seed), everyMs: [2000, 5000] } as const;
  return Array.from({ length: count }, () => nextCut(options));
}

test("the blows of a seed are the same each time, and of every kind", () => {
  assert.deepEqual(blows(3, 50), blows(3, 50));
  const many = blows(4, 300);
  assert.ok(many.every(({ afterMs }) => afterMs >= 2000 && afterMs <= 5000));
  const points = many.flatMap(({ cut, next }) => [cut, next]).filter((each) => typeof each === "object");
  for (const how of ["fin", "rst", "silence"] as const) {
    assert.ok(
      many.some(({ cut }) => cut === how),
      `${how} at once`,
    );
    assert.ok(
      points.some((point) => point.how === how && point.forward !== undefined),
      `${how} forward`,
    );
    assert.ok(
      points.some((point) => point.how === how && point.backward !== undefined),
      `${how} backward`,
    );
  }
  assert.ok(many.some(({ next }) => next === undefined) && many.some(({ next }) => next !== undefined));
});
