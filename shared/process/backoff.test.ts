import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { backoffMs, DEFAULT_BACKOFF, nextAttempt } from "./backoff.ts";

const most = { random: () => 0.999999 };
const least = { random: () => 0 };

test("the longest wait is the base for the first second, then doubles up to the cap", () => {
  assert.deepEqual(
    [0, 1, 6, 7, 8, 9, 13, 14, 5_000].map((attempt) => backoffMs(attempt, 0, most)),
    [250, 250, 250, 500, 1_000, 2_000, 30_000, 30_000, 30_000],
  );
});

test("the jitter is full: any wait down to none may come", () => {
  assert.equal(backoffMs(12, 0, least), 0);
  fc.assert(
    fc.property(fc.nat(100), fc.double({ min: 0, max: 0.999, noNaN: true }), (attempt, fraction) => {
      const wait = backoffMs(attempt, 0, { random: () => fraction });
      assert.ok(wait >= 0 && wait <= Math.min(DEFAULT_BACKOFF.capMs, 250 * 2 ** attempt));
    }),
  );
});

test("what the server asks for is a floor with the jitter on top, and bounded", () => {
  assert.equal(backoffMs(0, 5_000, least), 5_000);
  assert.equal(backoffMs(0, 5_000, most), 5_250);
  assert.equal(backoffMs(0, 1e12, least), 600_000);
  for (const nonsense of [Number.NaN, Number.POSITIVE_INFINITY, -5]) assert.equal(backoffMs(0, nonsense, least), 0);
});

test("a minute of health starts over, less does not", () => {
  assert.equal(nextAttempt(6, 60_000), 0);
  assert.equal(nextAttempt(6, 59_999), 7);
  assert.equal(nextAttempt(0, 0), 1);
});
