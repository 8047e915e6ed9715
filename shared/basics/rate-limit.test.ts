import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { Penalties, TokenBucket } from "./rate-limit.ts";

function bucket(perSecond: number, burst: number): { take: (count: number) => number; clock: { ms: number } } {
  const clock = { ms: 1_000 };
  const one = new TokenBucket({ perSecond, burst, now: () => clock.ms });
  return { take: (count) => one.take(count), clock };
}

test("a burst is taken at once, and the next one waits for its share of a second", () => {
  const { take } = bucket(10, 3);
  assert.deepEqual([take(1), take(1), take(1), take(1)], [0, 0, 0, 100]);
});

test("after the wait that was returned, the take succeeds", () => {
  const { take, clock } = bucket(3, 1);
  assert.equal(take(1), 0);
  const waitMs = take(1);
  assert.equal(waitMs, 334);
  clock.ms += waitMs;
  assert.equal(take(1), 0);
});

test("a refusal takes nothing", () => {
  const { take, clock } = bucket(1_000, 100);
  assert.equal(take(90), 0);
  assert.equal(take(20), 10);
  assert.equal(take(10), 0);
  clock.ms += 5;
  assert.equal(take(5), 0);
});

test("a pause fills the bucket to its burst and no further", () => {
  const { take, clock } = bucket(10, 3);
  clock.ms += 3_600_000;
  assert.deepEqual([take(3), take(1)], [0, 100]);
});

test("a clock that stands still or goes back gives nothing", () => {
  const { take, clock } = bucket(10, 1);
  assert.equal(take(1), 0);
  clock.ms -= 500;
  assert.equal(take(1), 100);
  clock.ms += 500;
  assert.equal(take(1), 100);
});

test("taking more than the bucket holds throws", () => {
  assert.throws(() => bucket(10, 3).take(4), RangeError);
});

test("never more than rate × time + burst, in any span of time", () => {
  const steps = fc.array(
    fc.record({ afterMs: fc.nat({ max: 400 }), share: fc.double({ min: 0, max: 1, noNaN: true }) }),
  );
  fc.assert(
    fc.property(
      fc.integer({ min: 1, max: 100_000 }),
      fc.integer({ min: 1, max: 200_000 }),
      steps,
      (rate, burst, all) => {
        const { take, clock } = bucket(rate, burst);
        const taken: { at: number; count: number }[] = [];
        for (const { afterMs, share } of all) {
          clock.ms += afterMs;
          const count = Math.max(1, Math.floor(share * burst));
          for (let waitMs = take(count); waitMs > 0; waitMs = take(count)) clock.ms += waitMs;
          taken.push({ at: clock.ms, count });
        }
        // In every span, not only from the start.
        for (const [first, { at: from }] of taken.entries()) {
          let sum = 0;
          for (const { at, count } of taken.slice(first)) {
            sum += count;
            assert.ok(sum <= (rate * (at - from)) / 1_000 + burst + 1e-6);
          }
        }
      },
    ),
    { numRuns: 500 },
  );
});

function penalties() {
  let nowMs = 0;
  return { all: new Penalties(() => nowMs), advance: (ms: number) => (nowMs += ms) };
}

test("each offence doubles the wait up to a minute, and ten quiet minutes begin anew", () => {
  const { all, advance } = penalties();
  const waits: number[] = [];
  for (let offence = 0; offence < 8; offence++) {
    all.add("192.0.2.1");
    waits.push(all.leftMs("192.0.2.1"));
    advance(waits.at(-1) ?? 0);
    assert.equal(all.leftMs("192.0.2.1"), 0);
  }
  assert.deepEqual(waits, [1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000]);
  advance(600_000);
  all.add("192.0.2.1");
  assert.equal(all.leftMs("192.0.2.1"), 1_000);
});

test("other networks do not wait, and only a limited number is remembered", () => {
  const { all } = penalties();
  for (let index = 0; index <= 1_024; index++) all.add(`network ${index}`);
  assert.equal(all.leftMs("another"), 0);
  assert.equal(all.leftMs("network 0"), 0);
  assert.equal(all.leftMs("network 1"), 1_000);
});
