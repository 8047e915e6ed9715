import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { matchesPieces, piecesMeet } from "./wildcard.ts";

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

test("two patterns meet where one value of few letters matches both, and nowhere else", () => {
  const letters = ["a", "b"];
  /** All values up to seven letters: as long as two patterns of four need one to match both. */
  const values = [""];
  for (let at = 0; (values[at] ?? "").length < 7; at++) {
    for (const letter of letters) values.push(`${values[at]}${letter}`);
  }
  const pattern = fc.array(fc.constantFrom("a", "b", "*"), { maxLength: 4 }).map((part) => part.join("").split("*"));
  fc.assert(
    fc.property(pattern, pattern, (one, other) => {
      const expected = values.some((value) => matchesPieces(one, value) && matchesPieces(other, value));
      assert.equal(piecesMeet(one, other), expected, `${one.join("*")} and ${other.join("*")}`);
      assert.equal(piecesMeet(other, one), expected);
    }),
    { numRuns: 3000 },
  );
});
