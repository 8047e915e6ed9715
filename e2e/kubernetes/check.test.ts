import assert from "node:assert/strict";
import { test } from "node:test";
import { belongsTo, type Check } from "./check.ts";
import type { Lane } from "./world/lanes.ts";

const CHECK: Check = { name: "cp", deadlineMs: 1_000, run: async () => ({ printed: "" }) };
const LANES: readonly Lane[] = ["uds", "tcp", "direct"];

function lanesOf(check: Check, { lanes = LANES, full = false } = {}): Lane[] {
  return lanes.filter((lane) => belongsTo(lane, check, lanes, full));
}

test("a check runs once, on the first lane of the run that it can run on", () => {
  assert.deepEqual(lanesOf(CHECK), ["uds"]);
  assert.deepEqual(lanesOf({ ...CHECK, lanes: ["tcp"] }), ["tcp"]);
  assert.deepEqual(lanesOf(CHECK, { lanes: ["direct", "tcp"] }), ["direct"]);
  assert.deepEqual(lanesOf({ ...CHECK, lanes: ["uds"] }, { lanes: ["tcp"] }), []);
});

test("a check of every lane, and in a full run each check, runs on all lanes that it can run on", () => {
  assert.deepEqual(lanesOf({ ...CHECK, everyLane: true }), LANES);
  assert.deepEqual(lanesOf({ ...CHECK, everyLane: true, lanes: ["tcp"] }), ["tcp"]);
  assert.deepEqual(lanesOf(CHECK, { full: true }), LANES);
  assert.deepEqual(lanesOf({ ...CHECK, inFullRun: true }, { full: true }), LANES);
  assert.deepEqual(lanesOf({ ...CHECK, inFullRun: true }), []);
  assert.deepEqual(lanesOf({ ...CHECK, lanes: ["uds", "tcp"] }, { full: true }), ["uds", "tcp"]);
});
