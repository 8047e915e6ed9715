import assert from "node:assert/strict";
import { test } from "node:test";
import { yamlDocuments, yamlValues } from "./yaml.ts";

const SLIPS: readonly [text: string, line: number, cure: RegExp][] = [
  ["a: b\nc d\ne: f\n", 2, /write "key: value" with a colon and a space/],
  ["a: b\nc: [d\ne: f\n", 3, /close what \[ or \{ has opened/],
  ["a:\n\t- b\n", 2, /write spaces/],
  ["a:\n  - b\n - c\n", 3, /indent it as its neighbours/],
  ["a: b\n  c: d\n", 1, /indent it as its neighbours, and put a text with ": " in it in quotes/],
  ["a: [*]\n", 1, /put what begins with \* or & in quotes/],
  ["a: @b\n", 1, /put it in quotes/],
  ["a: [b], c\n", 1, /take it away, or put what belongs together in quotes/],
  ['a: "b\n', 2, /^Missing closing " at line 2, column 1$/],
];

test("a syntax fault has its line and a cure, in files of documents and of options", () => {
  for (const [text, line, cure] of SLIPS) {
    const { fault = "" } = yamlValues(text);
    assert.equal(fault, yamlDocuments(text)[0]?.fault);
    assert.match(fault, new RegExp(` at line ${line}, column \\d+.*\\.$`), text);
    assert.match(fault.slice(0, -1), cure, text);
  }
});
