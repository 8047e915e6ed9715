import assert from "node:assert/strict";
import {
  AnswerBody,
  type AnswerHead,
  AnswerReader,
  MAX_HEAD_BYTES,
  UnreadableAnswer,
} from "../../shared/dial/connect-answer.ts";
import { refusal } from "../../shared/dial/http-proxy.ts";
import { assertPrintable, attempt, splits, type Target } from "../target.ts";

const AT = "http://proxy.example:3128";
const SECRET = "s3cr3t-p4ss";
const MAX_BODY = 2_048;

/** The parts that were read of an answer to CONNECT. */
interface Answer {
  readonly head: AnswerHead | undefined;
  readonly problem: string | undefined;
  readonly page: string;
  readonly isComplete: boolean;
  /** The bytes that belong to nobody here. */
  readonly rest: Buffer;
}

/** A proxy's answer to CONNECT: header, and the body of a refusal. */
export const connectAnswer: Target = {
  name: "connect-answer",
  maxLength: MAX_HEAD_BYTES + 512,
  seeds: [
    "HTTP/1.1 200 Connection established\r\nVia: 1.1 x\r\n\r\nbehind",
    "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.0 407 Login\r\nProxy-Authenticate: Basic realm=x\r\nContent-Length: 3\r\n\r\nabcmore",
    "HTTP/1.1 502 Bad\nTransfer-Encoding: chunked\nRetry-After: 5\n\n3;x=y\r\nabc\r\n0\r\nTrailer: a\r\n\r\nHTTP/1.1 200 OK\r\n\r\n",
    "HTTP/1.1 511 x\r\nLocation: http://login.example/?a=b\r\nContent-Encoding: gzip\r\nX: a\r\n b\r\n\r\n",
    "\x15\x03\x01\0\x02\x02\x28",
  ].map((text) => Buffer.from(text, "latin1")),
  words: [
    "HTTP/1.1 200 ",
    "\r\n",
    "\r\n\r\n",
    "\n\n",
    "\r",
    "Content-Length: ",
    "Transfer-Encoding: chunked\r\n",
    "gzip, chunked",
    "0\r\n",
    "ffffffff\r\n",
    `: ${SECRET}`,
    "Retry-After: ",
  ],
  run(input) {
    const [together, apart] = splits(input);
    const whole = read(together);
    assert.deepEqual(read(apart), whole);
    const { head, problem, page } = whole;
    if (problem !== undefined) {
      assertPrintable(problem, 200);
      return problem;
    }
    if (head === undefined) {
      assert.ok(input.length <= MAX_HEAD_BYTES, "this number of bytes is enough to decide");
      return "more";
    }
    assert.ok(head.status >= 200 && head.status <= 999 && head.status !== 101);
    for (const text of [head.reason, ...[...head.fields.values()].flat()]) assert.match(text, /^[^\r\n]*$/, "one line");
    assert.ok(Buffer.byteLength(page) <= 3 * 1_024, "the beginning of the page");
    const fault = refusal({ at: AT, authority: "server.example:443", head, page, unsent: "", secrets: [SECRET] });
    assertPrintable(fault.message, 1_000);
    assert.ok(!fault.message.includes(SECRET), "an answer that repeats a secret is not shown");
    return `${fault.fault} ${fault.retryAfterMs !== undefined} ${whole.isComplete} ${page !== ""} ${whole.rest.length > 0}`;
  },
};

function read(pieces: readonly Buffer[]): Answer {
  const reader = new AnswerReader();
  let body: AnswerBody | undefined;
  let head: AnswerHead | undefined;
  const behind: Buffer[] = [];
  const { error } = attempt(() => {
    for (const piece of pieces) {
      const found = head === undefined ? reader.push(piece) : { head, rest: piece };
      if (found === undefined) continue;
      head = found.head;
      body ??= new AnswerBody(head, MAX_BODY);
      const rest = body.push(found.rest);
      if (rest !== undefined) behind.push(rest);
    }
  }, UnreadableAnswer);
  const isComplete = body?.isComplete ?? false;
  // Bytes behind an incomplete body are of no use, and are not kept apart.
  const rest = isComplete ? Buffer.concat(behind) : Buffer.alloc(0);
  return { head, problem: error?.message, page: body?.text ?? "", isComplete, rest };
}
