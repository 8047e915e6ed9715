import assert from "node:assert/strict";
import { test } from "node:test";
import { seconds } from "./seconds.ts";

test("a time in a sentence has two digits, and no zeros that say nothing", () => {
  const table: [number, string][] = [
    [0, "0 s"],
    [5, "0.005 s"],
    [60, "0.06 s"],
    [299.6, "0.3 s"],
    [4_899, "4.9 s"],
    [4_999.5, "5 s"],
    [8_000, "8 s"],
    [125_400, "125 s"],
    [300_000, "300 s"],
  ];
  for (const [ms, text] of table) assert.equal(seconds(ms), text);
});
