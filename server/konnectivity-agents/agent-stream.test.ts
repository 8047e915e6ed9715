import assert from "node:assert/strict";
import { test } from "node:test";
import { UNBOUNDED } from "../../shared/limits/memory-account.ts";
import { SessionMemory } from "../../shared/yamux/session-memory.ts";
import { AgentStream } from "./agent-stream.ts";

const PART = 32 * 1024;

/** A stream, and what it has sent; `takeOne`: HTTP/2 has taken the last of it. */
function streamOf() {
  const sent: (number | "CLOSE_REQ")[] = [];
  let taken: (() => void) | undefined;
  const stream = new AgentStream(1n, {
    memory: new SessionMemory(1e6, UNBOUNDED, () => 0, []),
    send: (_, { length }, done) => {
      sent.push(length);
      taken = done;
    },
    requestClose: () => sent.push("CLOSE_REQ"),
    forget: () => {},
  });
  return { stream, sent, takeOne: () => taken?.() };
}

test("a long write is sent in parts, each when the one before was taken, and CLOSE_REQ goes after the last", () => {
  const { stream, sent, takeOne } = streamOf();
  stream.end(Buffer.alloc(2 * PART + 1));
  for (const expected of [[PART], [PART, PART], [PART, PART, 1]]) {
    assert.deepEqual(sent, expected);
    takeOne();
  }
  assert.deepEqual(sent, [PART, PART, 1, "CLOSE_REQ"]);
});

test("after CLOSE_REQ no part of what was written before is sent", () => {
  const { stream, sent, takeOne } = streamOf();
  stream.write(Buffer.alloc(2 * PART));
  stream.destroy();
  takeOne();
  assert.deepEqual(sent, [PART, "CLOSE_REQ"]);
});
