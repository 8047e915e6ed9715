import assert from "node:assert/strict";
import { test } from "node:test";
import { phasesOf, readSettings } from "./settings.ts";

test("a long run has a calm minute twice, and a short one still gives half of its time to the load", () => {
  assert.deepEqual(phasesOf(30), { warmUpMs: 120_000, loadMs: 1_560_000, calmMs: 60_000 });
  assert.deepEqual(phasesOf(2), { warmUpMs: 24_000, loadMs: 66_000, calmMs: 15_000 });
  assert.deepEqual(phasesOf(1), { warmUpMs: 20_000, loadMs: 20_000, calmMs: 10_000 });
});

test("without options a run takes 30 minutes, and what is no length is refused in a sentence", () => {
  assert.equal(readSettings([]).minutes, 30);
  assert.equal(readSettings(["--minutes", "2.5", "--seed", "7"]).seed, 7);
  assert.throws(() => readSettings(["--minutes", "soon"]), /--minutes wants a number of at least 1, not "soon"/);
  assert.throws(() => readSettings(["--minutes", "0.5"]), /at least 1/);
  assert.throws(() => readSettings(["--seed", "1.5"]), /--seed wants a whole number/);
});
