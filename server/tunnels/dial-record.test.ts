import assert from "node:assert/strict";
import { test } from "node:test";
import { DialRecord } from "./dial-record.ts";

test("an agent rests after three dials in a row have failed, longer after each further one, and for 30 s at most", () => {
  let now = 1_000_000;
  const record = new DialRecord(() => now);
  const restMs = (): number => {
    const before = now;
    while (record.rests) now += 250;
    return now - before;
  };
  record.failed();
  record.failed();
  assert.equal(record.rests, false);
  const rests: number[] = [];
  for (let failure = 0; failure < 8; failure++) {
    record.failed();
    rests.push(restMs());
  }
  assert.deepEqual(rests, [1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000, 30_000]);
});

test("a dial that succeeds ends the rest, and begins the count anew", () => {
  const record = new DialRecord(() => 0);
  for (let failure = 0; failure < 5; failure++) record.failed();
  assert.equal(record.rests, true);
  record.succeeded();
  assert.equal(record.rests, false);
  record.failed();
  record.failed();
  assert.equal(record.rests, false);
});
