import assert from "node:assert/strict";
import { test } from "node:test";
import { repeats } from "./repeats.ts";

test("a secret is found by the beginning of it, and of each of its parts, whatever is done to the signs between", () => {
  const secret = "e30.eyJzdWIiOiJhZ2VudCJ9.c2lnbmF0dXJl/Yml0cw==";
  for (const text of [
    `Authorization: Bearer ${secret}`,
    `cut: ${secret.slice(0, 8)}`,
    `?token=${encodeURIComponent(secret)}`,
    "the payload is eyJzdWIiOiJhZ2VudCJ9",
    'the signature is "c2lnbmF0dXJl\\/Yml0cw=="',
  ]) {
    assert.equal(repeats(text, secret), true, text);
  }
  for (const text of ["", "Forbidden", "e30.", "the token has expired"])
    assert.equal(repeats(text, secret), false, text);
  assert.equal(repeats("anything", ""), false);
  assert.equal(repeats("it is a-b-c", "a-b-c"), true);
});
