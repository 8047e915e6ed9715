import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { matchesPieces } from "./wildcard.ts";

test("wildcards match as the equal regular expression does", () => {
  const pattern = fc.array(fc.constantFrom("a", "b", "*"), { maxLength: 8 }).map((part) => part.join(""));
  const value = fc.array(fc.constantFrom("a", "b"), { maxLength: 12 }).map((part) => part.join(""));
  fc.assert(
    fc.property(pattern, value, (text, name) => {
      const expected = new RegExp(`^${text.replaceAll("*", ".*")}$`).test(name);
      assert.equal(matchesPieces(text.split("*"), name), expected);
    }),
    { numRuns: 2000 },
  );
});

test("first and last piece never share a character", () => {
  assert.equal(matchesPieces(["ab", "ba"], "aba"), false);
  assert.equal(matchesPieces(["ab", "ba"], "abba"), true);
});
