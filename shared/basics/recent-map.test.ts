import assert from "node:assert/strict";
import { test } from "node:test";
import { RecentMap } from "./recent-map.ts";

test("the entry that was set longest ago makes room for a new one", () => {
  const map = new RecentMap<string, number>(2);
  map.set("a", 1);
  map.set("b", 2);
  map.set("a", 3);
  map.set("c", 4);
  assert.deepEqual([map.get("a"), map.get("b"), map.get("c")], [3, undefined, 4]);
  assert.equal(
    map.getOrMake("c", () => 5),
    4,
  );
  assert.equal(
    map.getOrMake("d", () => 6),
    6,
  );
  assert.deepEqual([map.get("a"), map.get("c"), map.get("d")], [undefined, 4, 6]);
});
