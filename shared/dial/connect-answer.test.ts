import assert from "node:assert/strict";
import { test } from "node:test";
import { AnswerBody, AnswerReader, UnreadableAnswer } from "./connect-answer.ts";

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

test("what stands behind the limit of a body is not read, however the bytes are split", () => {
  const head = { status: 403, reason: "", minor: 1, fields: new Map([["transfer-encoding", ["chunked"]]]) } as const;
  const bytes = Buffer.from(`3\r\nabc\r\n0\r\nTrailer: a\r\n\r\n`);
  for (const size of [1, 7, bytes.length]) {
    const body = new AnswerBody(head, bytes.length - 1);
    for (let at = 0; at < bytes.length; at += size) body.push(bytes.subarray(at, at + size));
    assert.deepEqual([body.isComplete, body.isOver, body.text], [false, true, "abc"], `in pieces of ${size}`);
  }
});
