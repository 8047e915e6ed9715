import assert from "node:assert/strict";
import { test } from "node:test";
import { startRelay } from "./faults.ts";
import { Random } from "./random.ts";
import { nextCut, type PlannedCut, RandomCuts } from "./random-cuts.ts";
import { echoTarget } from "./targets/plain.ts";
import { waitFor } from "./wait.ts";

function blows(seed: number, count: number): PlannedCut[] {
  const options = { random: new Random(seed), everyMs: [2000, 5000] } as const;
  return Array.from({ length: count }, () => nextCut(options));
}

test("a seed is a sequence: the same again, another one for another seed, spread over its range", () => {
  const draw = (seed: number) => {
    const random = new Random(seed);
    return Array.from({ length: 1000 }, () => random.between(1, 6));
  };
  assert.deepEqual(draw(7), draw(7));
  assert.notDeepEqual(draw(7), draw(8));
  for (let face = 1; face <= 6; face++) {
    const share = draw(9).filter((each) => each === face).length;
    assert.ok(share > 120 && share < 220, `${face}: ${share} of 1000`);
  }
  assert.deepEqual([...new Set(draw(9))].toSorted(), [1, 2, 3, 4, 5, 6]);
});

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

test("random cuts go on until it is disposed, and keeps the story", async () => {
  await using target = await echoTarget();
  await using relay = await startRelay(target);
  const randomCuts = new RandomCuts(relay, { random: new Random(5), everyMs: [1, 5] });
  await waitFor(() => randomCuts.story.length >= 5);
  randomCuts[Symbol.dispose]();
  const length = randomCuts.story.length;
  assert.match(
    randomCuts.story[0] ?? "",
    /^\d+ ms: \{"cut":.* after 0 connections, 0 cuts, 0 bytes forward, 0 backward$/,
  );
  await new Promise((resolve) => setTimeout(resolve, 30));
  assert.equal(randomCuts.story.length, length);
});
