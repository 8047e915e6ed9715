import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { MAX_TIMER_MS } from "../basics/timers.ts";
import { formatDuration, formatSize, parseDuration, parseSize } from "./values.ts";

test("durations are read as Go reads them", () => {
  const table: [string, number][] = [
    ["0", 0],
    ["0s", 0],
    ["500ms", 500],
    ["8s", 8_000],
    ["1h30m", 5_400_000],
    ["1.5h", 5_400_000],
    [".5s", 500],
    ["1.s", 1_000],
    ["1m0.25s", 60_250],
    ["100us", 0.1],
    ["100µs", 0.1],
    ["100μs", 0.1],
    ["250ns", 0.00025],
    ["1h0m0s", 3_600_000],
    [" 10s ", 10_000],
  ];
  for (const [text, ms] of table) assert.equal(parseDuration(text), ms, text);
});

test("a duration without unit, with a plus or beyond a timer is refused with the cure", () => {
  for (const text of ["", "10", "+1s", "1d", "s", ".s", "1s x", "1 s", "ten", "1e3s", "Infinitys", "9".repeat(500)]) {
    assert.throws(() => parseDuration(text), /needs a duration with its unit, such as 500ms/, text);
  }
  assert.throws(() => parseDuration("597h"), /longer than a timer can wait/);
});

test("a hostile duration is refused in linear time", () => {
  const before = performance.now();
  assert.throws(() => parseDuration(`${"1".repeat(100_000)}x`));
  assert.throws(() => parseDuration(`${"1s".repeat(50_000)}x`));
  assert.ok(performance.now() - before < 2_000, "quadratic time takes far longer");
});

test("every whole number of milliseconds survives the round trip", () => {
  fc.assert(
    fc.property(fc.integer({ min: 0, max: MAX_TIMER_MS }), (ms) => {
      assert.equal(parseDuration(formatDuration(ms)), ms);
    }),
  );
  assert.equal(formatDuration(5_400_000), "1h30m");
  assert.equal(formatDuration(250), "250ms");
  assert.equal(formatDuration(0), "0s");
});

test("the parts of a duration add up, whatever their order", () => {
  const part = fc.tuple(fc.integer({ min: 0, max: 99 }), fc.constantFrom("ms", "s", "m", "h"));
  const unit = { ms: 1, s: 1_000, m: 60_000, h: 3_600_000 } as const;
  fc.assert(
    fc.property(fc.array(part, { minLength: 1, maxLength: 5 }), (parts) => {
      const text = parts.map(([count, name]) => `${count}${name}`).join("");
      const sum = parts.reduce((total, [count, name]) => total + count * unit[name as keyof typeof unit], 0);
      assert.equal(parseDuration(text), sum);
    }),
  );
});

test("sizes are read in powers of 1,024", () => {
  const table: [string, number][] = [
    ["0", 0],
    ["4096", 4_096],
    ["1B", 1],
    ["64KiB", 65_536],
    ["64Ki", 65_536],
    ["1.5MiB", 1_572_864],
    ["16 MiB", 16_777_216],
    ["2GiB", 2_147_483_648],
  ];
  for (const [text, bytes] of table) assert.equal(parseSize(text), bytes, text);
});

test("what is negative is reported as such", () => {
  assert.throws(() => parseDuration("-5s"), /must not be negative: a duration such as 8s, not "-5s"/);
  assert.throws(() => parseDuration(" -.5s"), /must not be negative/);
  assert.throws(() => parseSize("-1"), /must not be negative: a size such as 64KiB, not "-1"/);
  assert.throws(() => parseDuration("-"), /needs a duration with its unit/);
});

test("a size in another unit or not in whole bytes is refused", () => {
  for (const text of ["", "KiB", "1KB", "1MB", "64kib", "1e3", "0x10", "1.5.5KiB", "1".repeat(50)]) {
    assert.throws(() => parseSize(text), /needs a size in bytes, KiB, MiB or GiB/, text);
  }
  assert.throws(() => parseSize("1.5"), /not a whole number of bytes/);
  assert.throws(() => parseSize("99999999GiB"), /not a whole number of bytes/);
});

test("every size survives the round trip", () => {
  const sizes = fc.oneof(
    fc.maxSafeNat(),
    fc.integer({ min: 0, max: 4_096 }).map((n) => n * 1_024),
    fc.integer({ min: 0, max: 4_096 }).map((n) => n * 1_048_576),
  );
  fc.assert(
    fc.property(sizes, (bytes) => {
      assert.equal(parseSize(formatSize(bytes)), bytes);
    }),
  );
  assert.equal(formatSize(16_777_216), "16MiB");
  assert.equal(formatSize(1_000), "1000B");
});
