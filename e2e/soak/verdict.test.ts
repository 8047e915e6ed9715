import assert from "node:assert/strict";
import { test } from "node:test";
import type { Figures } from "./figures.ts";
import { Tally } from "./tally.ts";
import { growthOf, lossesOf } from "./verdict.ts";

const MIB = 1024 * 1024;

function figures(rssMib: number, descriptors: number, heldMib = 20): Figures[] {
  return [{ name: "server", rssBytes: rssMib * MIB, heldBytes: heldMib * MIB, descriptors }];
}

test("a process may have and hold 15 % more memory than after the warm-up, and not one descriptor more", () => {
  const before = figures(100, 40);
  assert.deepEqual(growthOf(before, figures(114.9, 40)), []);
  assert.deepEqual(growthOf(before, figures(60, 39)), []);
  assert.deepEqual(growthOf(before, figures(116, 40)), [
    "The server's RSS is 116.0 MiB; after the warm-up it was 100.0 MiB.",
  ]);
  assert.deepEqual(growthOf(before, figures(100, 40, 24)), [
    "The server holds 24.0 MiB of heap and buffers; after the warm-up it held 20.0 MiB.",
  ]);
  assert.deepEqual(growthOf(before, figures(100, 41)), ["The server has 41 descriptors; after the warm-up it had 40."]);
});

test("a run in which a kind of traffic never came to its end is no good run", () => {
  const tally = new Tally();
  tally.changes = 1;
  tally.endedWell("bulk");
  assert.deepEqual(lossesOf(tally, ["bulk"]), []);
  assert.deepEqual(lossesOf(tally, ["bulk", "echo"]), ['No connection of the kind "echo" came to its end.']);
});

test("of many faults the first are shown and the rest are counted", () => {
  const tally = new Tally();
  tally.changes = 1;
  for (let number = 1; number <= 25; number++) tally.fault(`echo ${number}`);
  const losses = lossesOf(tally, []);
  assert.equal(losses.length, 21);
  assert.deepEqual([losses.at(0), losses.at(-1)], ["Lost: echo 1.", "5 more were lost."]);
});
