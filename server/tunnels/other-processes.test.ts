import assert from "node:assert/strict";
import { test } from "node:test";
import { OtherProcesses } from "./other-processes.ts";

test("what the holder before has heard is known to the next, and stays what it was to the one before", () => {
  const before = new OtherProcesses();
  before.note("1", false);
  const next = new OtherProcesses(before);
  next.note("1", true);
  next.note("2", false);
  assert.deepEqual([next.isRunning("1"), next.has("2"), next.isRunning("2")], [true, true, false]);
  assert.deepEqual([before.isRunning("1"), before.has("2")], [false, false]);
});

test("of restarts without end only the last are remembered, and a process that is heard of all the time stays", () => {
  const others = new OtherProcesses();
  for (let restart = 0; restart < 10_000; restart++) {
    others.note("runs", true);
    others.note(String(restart), false);
    assert.equal(others.isRunning("runs"), true);
  }
  const remembered = Array.from({ length: 10_000 }, (_, restart) => String(restart)).filter((one) => others.has(one));
  assert.ok(remembered.length < 100 && remembered.includes("9999") && !remembered.includes("0"));
});
