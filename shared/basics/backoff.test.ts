import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { Backoff, backoffMs, DEFAULT_BACKOFF } from "./backoff.ts";

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

test("a loss counts, and is the first one again after a minute of health", () => {
  const backoff = new Backoff(most);
  for (let lives = 1; lives <= 7; lives++) {
    backoff.ended("lost", 59_999);
    assert.equal(backoff.failures, lives);
  }
  assert.equal(backoff.waitMs(), 250);
  backoff.attemptFailed();
  backoff.attemptFailed();
  assert.deepEqual([backoff.failures, backoff.waitMs()], [9, 1_000]);
  backoff.connected();
  assert.equal(backoff.failures, 7, "a welcome forgives failed attempts only");
  backoff.ended("lost", 60_000);
  assert.equal(backoff.failures, 1);
});

test("a clean end is no failure and forgives those before it, unless it came at once", () => {
  const backoff = new Backoff();
  for (const [livedMs, failures] of [
    [999, 1],
    [999, 2],
    [1_000, 0],
  ] as const) {
    backoff.ended("clean", livedMs);
    assert.equal(backoff.failures, failures);
  }
});
