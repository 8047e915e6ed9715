import assert from "node:assert/strict";
import { test } from "node:test";
import type { Reclaimable } from "./memory-account.ts";
import { RECLAIM, type ReclaimLevel, reclaim } from "./reclaim.ts";

const NOW = 1e9;
const { longStalled, stalled, slow, moving } = RECLAIM;

/** A reader that stands still, and the names of those that were ended. */
function reader(name: string, stalledMs: number, held: number, ended: string[], longestPauseMs = 0): Reclaimable {
  return { held, lastProgressAt: NOW - stalledMs, longestPauseMs, evict: () => void ended.push(name) };
}

const LEVELS: readonly (readonly [what: string, stalledMs: number, longestPauseMs: number, first: ReclaimLevel])[] = [
  ["that has moved since the look began", -1, 0, moving],
  ["that moved 199 ms ago", 199, 0, moving],
  ["that moved 200 ms ago", 200, 0, stalled],
  ["that moved less than 20 s ago", 19_999, 0, stalled],
  ["that moved 20 s ago", 20_000, 0, longStalled],
  ["that stands still for less than twice its longest pause", 3_999, 2_000, slow],
  ["that stands still for twice its longest pause", 4_000, 2_000, stalled],
  ["that stands still for less than twice a pause of 14 s", 27_999, 14_000, slow],
  ["that stands still for twice a pause of 14 s", 28_000, 14_000, longStalled],
  ["with a pause of an hour, which counts as 20 s, that stands still for less than 40 s", 39_999, 3_600_000, slow],
  ["with a pause of an hour that stands still for 40 s", 40_000, 3_600_000, longStalled],
];

for (const [what, stalledMs, longestPauseMs, first] of LEVELS) {
  test(`a reader ${what} is ended from the level ${levelName(first)} on`, () => {
    for (const level of Object.values(RECLAIM)) {
      const ended: string[] = [];
      const count = reclaim([reader("it", stalledMs, 1, ended, longestPauseMs)], () => false, NOW, level);
      assert.deepEqual([count, ended.length], level >= first ? [1, 1] : [0, 0], levelName(level));
    }
  });
}

test("whoever stands still for longest goes first, then by bytes times time, and none once there is enough", () => {
  const ended: string[] = [];
  const readers = [
    reader("moves", 0, 9_000, ended),
    reader("slow", 1_000, 5_000, ended, 900),
    reader("few bytes for 10 s", 10_000, 10, ended),
    reader("many bytes for 1 s", 1_000, 200, ended),
    reader("one byte for 20 s", 20_000, 1, ended),
    reader("nothing for a minute", 60_000, 0, ended),
  ];
  assert.equal(
    reclaim(readers, () => ended.length === 4, NOW, moving),
    4,
  );
  assert.deepEqual(ended, ["one byte for 20 s", "many bytes for 1 s", "few bytes for 10 s", "slow"]);
});

test("what has ended together with another one is not ended again, and not counted", () => {
  const ended: string[] = [];
  const other = { ...reader("other", 1_000, 10, ended), held: 10 };
  const first: Reclaimable = {
    ...reader("first", 2_000, 10, ended),
    evict: () => {
      ended.push("first");
      other.held = 0;
    },
  };
  assert.equal(
    reclaim([other, first], () => false, NOW, stalled),
    1,
  );
  assert.deepEqual(ended, ["first"]);
});

function levelName(level: ReclaimLevel): string {
  return Object.entries(RECLAIM).find(([, one]) => one === level)?.[0] ?? "none";
}
