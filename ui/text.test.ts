import assert from "node:assert/strict";
import { test } from "node:test";
import { duration, milliseconds, plural, size, visible } from "./text.ts";

test("characters that draw nothing or turn the line around are written as escapes, and all others stay", () => {
  assert.equal(visible("a\u0007b\u202ec\u200bd\n"), "a\\u{7}b\\u{202e}c\\u{200b}d\\u{a}");
  assert.equal(visible("<b>Zürich 東京 👍"), "<b>Zürich 東京 👍");
});

test("sizes, durations and round trips have a unit that is read at a glance", () => {
  assert.deepEqual([0, 1023, 1536, 5 * 2 ** 20, 2 ** 41].map(size), ["0 B", "1023 B", "1.5 KiB", "5.0 MiB", "2.0 TiB"]);
  const ms = [-5, 59_400, 61_000, 3_660_000, 47 * 3_600_000, 72 * 3_600_000];
  assert.deepEqual(ms.map(duration), ["0 s", "59 s", "1 min 1 s", "1 h 1 min", "47 h 0 min", "3 days"]);
  assert.deepEqual([0.25, 12.4, 1_500].map(milliseconds), ["0.3 ms", "12 ms", "1.5 s"]);
  assert.deepEqual(
    [1, 2_000].map((value) => plural(value, "time")),
    ["1 time", "2,000 times"],
  );
});
