import assert from "node:assert/strict";
import { test } from "node:test";
import { AnswerReader, UnreadableAnswer } from "./connect-answer.ts";

test("TLS where HTTP is expected gives one message, however its bytes are split", () => {
  const alert = Buffer.from([0x15, 3, 1, 0, 2, 2, 70]);
  for (const size of [1, 2, 7]) {
    const reader = new AnswerReader();
    assert.throws(
      () => {
        for (let at = 0; at < alert.length; at += size) reader.push(alert.subarray(at, at + size));
      },
      (error) => error instanceof UnreadableAnswer && /^speaks TLS/.test(error.message),
      `${size} bytes at a time`,
    );
  }
});
