import assert from "node:assert/strict";
import { test } from "node:test";
import { CREDENTIAL_FAULTS } from "../outcomes.ts";
import { agreedFeatures, closeReason, parseCloseReason } from "./handshake.ts";

test("a close reason begins with the fault of a credential, and any other reason is text only", () => {
  for (const fault of [...CREDENTIAL_FAULTS, undefined]) {
    const refusal = { fault, reason: "no client certificate: none was sent" };
    assert.deepEqual(parseCloseReason(closeReason(refusal)), refusal);
  }
  for (const reason of ["", "later_word: no", "certificate_missing", "no: token_expired: "]) {
    assert.deepEqual(parseCloseReason(reason), { fault: undefined, reason });
  }
});

test("only features that both ends have named are used; a peer of an older version names none", () => {
  assert.deepEqual(agreedFeatures(["b", "c", "d"], ["a", "b", "d"]), new Set(["b", "d"]));
  assert.deepEqual(agreedFeatures(undefined, ["a"]), new Set());
  assert.deepEqual(agreedFeatures(["a"], []), new Set());
});
