import assert from "node:assert/strict";
import { PassThrough } from "node:stream";
import { text } from "node:stream/consumers";
import { test } from "node:test";
import { answerRaw } from "./raw-answer.ts";
import { CALLER, notUnderstood } from "./wrong-port.ts";

test("who speaks something else on an agents' port hears a whole answer, with the server's mark", async () => {
  const tooLarge = notUnderstood(Object.assign(new Error(), { code: "HPE_HEADER_OVERFLOW" }), 1_024);
  const noHttp = notUnderstood(Object.assign(new Error(), { code: "HPE_INVALID_METHOD" }), 1_024);
  for (const answer of [CALLER, tooLarge, noHttp]) {
    assert.ok(answer !== undefined);
    const socket = new PassThrough();
    const written = text(socket);
    answerRaw(socket, answer);
    const [head = "", body] = (await written).split("\r\n\r\n");
    const [line = "", ...fields] = head.split("\r\n");
    assert.ok(line.startsWith(`HTTP/1.1 ${answer.status} `), line);
    assert.ok(fields.includes(`proxy-status: culvert; error=http_request_error; details="${answer.sentence}"`), head);
    assert.ok(fields.includes("connection: close"), head);
    assert.equal(body, `${answer.sentence}\n`);
  }
});
