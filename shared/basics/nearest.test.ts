import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { editDistance, nearest } from "./nearest.ts";

const KNOWN = ["server-cert", "server-key", "server-ca-cert", "uds-name", "agent-port", "admin-port"];

test("a mistyped word finds the one that was meant", () => {
  assert.equal(nearest("server-crt", KNOWN), "server-cert");
  assert.equal(nearest("uds-nmae", KNOWN), "uds-name");
  assert.equal(nearest("agnet-port", KNOWN), "agent-port");
});

test("a word that resembles nothing gets no guess", () => {
  assert.equal(nearest("colour", KNOWN), undefined);
  assert.equal(nearest("x", [...KNOWN, "v"]), undefined);
  assert.equal(nearest("x".repeat(10_000), KNOWN), undefined);
});

test("the distance is symmetric, and nothing only for equal words", () => {
  fc.assert(
    fc.property(fc.string({ maxLength: 12 }), fc.string({ maxLength: 12 }), (a, b) => {
      assert.equal(editDistance(a, b), editDistance(b, a));
      assert.equal(editDistance(a, b) === 0, a === b);
    }),
  );
  assert.equal(editDistance("ab", "ba"), 1);
});
