import assert from "node:assert/strict";
import { test } from "node:test";
import { CarrierRecord } from "./carrier-record.ts";

const MINUTE_MS = 60_000;

test("a link whose connections last a minute is cut often, also where the agent moves before the cut", (t) => {
  t.mock.timers.enable({ apis: ["Date"] });
  const record = new CarrierRecord();
  const seen: boolean[] = [];
  for (const minutes of [1, 1, 1, 10, 1, 1]) {
    t.mock.timers.tick(minutes * MINUTE_MS);
    record.onResumed();
    seen.push(record.isCutOften);
  }
  assert.deepEqual(seen, [false, true, true, false, false, true]);
  t.mock.timers.tick(3 * MINUTE_MS);
  assert.equal(record.isCutOften, false, "the present connection has lasted");
});
