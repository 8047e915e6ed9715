import assert from "node:assert/strict";
import { test } from "node:test";
import { countAllocations, examine, TooExpensive } from "./examine.ts";
import type { Target } from "./target.ts";

test("buffers of claimed sizes are a finding, also where nothing is written to them", (t) => {
  t.after(countAllocations());
  const target: Target = {
    name: "claims",
    maxLength: 4,
    seeds: [],
    words: [],
    run: (input) => `${Buffer.allocUnsafe(input.readUInt32BE(0)).length}`,
  };
  assert.equal(examine(target, Buffer.from([0, 0, 1, 0])), "256");
  assert.throws(() => examine(target, Buffer.from([0, 16, 0, 0])), TooExpensive);
});
