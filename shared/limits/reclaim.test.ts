import assert from "node:assert/strict";
import { test } from "node:test";
import type { Reclaimable } from "./memory-account.ts";
import { RECLAIM, type ReclaimLevel, reclaim } from "./reclaim.ts";

const NOW = 1e9;
const { longStalled, stalled, moving } = RECLAIM;

/** A reader that stands still, and the names of those that were ended. */
function reader(name: string, stalledMs: number, held: number, ended: string[]): Reclaimable {
  return { held, lastProgressAt: NOW - stalledMs, evict: () => void ended.push(name) };
}

const LEVELS: readonly (readonly [what: string, stalledMs: number, first: ReclaimLevel])[] = [
  ["that has moved since the look began", -1, moving],
  ["that moved 199 ms ago", 199, moving],
  ["that moved 200 ms ago", 200, stalled],
  ["that moved less than 20 s ago", 19_999, stalled],
  ["that moved 20 s ago", 20_000, longStalled],
];

for (const [what, stalledMs, first] of LEVELS) {
  test(`a reader ${what} is ended from the level ${levelName(first)} on`, () => {
    for (const level of Object.values(RECLAIM)) {
      const ended: string[] = [];
      const count = reclaim([reader("it", stalledMs, 1, ended)], () => false, NOW, level);
      assert.deepEqual([count, ended.length], level >= first ? [1, 1] : [0, 0], levelName(level));
    }
  });
}

test("whoever stands still for longest goes first, then by bytes times time, and none once there is enough", () => {
  const ended: string[] = [];
  const readers = [
    reader("moves", 0, 9_000, ended),
    reader("few bytes for 10 s", 10_000, 10, ended),
    reader("many bytes for 1 s", 1_000, 200, ended),
    reader("one byte for 20 s", 20_000, 1, ended),
    reader("nothing for a minute", 60_000, 0, ended),
  ];
  assert.equal(
    reclaim(readers, () => ended.length === 3, NOW, moving),
    3,
  );
  assert.deepEqual(ended, ["one byte for 20 s", "many bytes for 1 s", "few bytes for 10 s"]);
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
