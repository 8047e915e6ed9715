import assert from "node:assert/strict";
import { test } from "node:test";
import { ABNORMAL_CLOSURE, CarrierLost, judgeClose } from "./carrier-end.ts";

/** What is said of a connection that ended so, without a close frame. */
function said(code: string | undefined): string | undefined {
  const socketError = code === undefined ? undefined : Object.assign(new Error(`write ${code}`), { code });
  const closed = { code: ABNORMAL_CLOSURE, reason: "", socketError, wasEnding: false, role: "client" } as const;
  return judgeClose(closed, (lossCause, sentence) => new CarrierLost(sentence, { lossCause, ageMs: 0, idleMs: 0 }))
    ?.message;
}

test("a connection that is cut says in words how, and keeps the kernel's for whoever looks it up", () => {
  assert.equal(said(undefined), "the connection was cut: the peer, or something in between, ended it without a word");
  assert.equal(said("ECONNRESET"), "the connection was cut: the peer, or something in between, reset it (ECONNRESET)");
  assert.equal(
    said("EPIPE"),
    "the connection was cut: the peer, or something in between, had closed it when we wrote (EPIPE)",
  );
  assert.match(said("ETIMEDOUT") ?? "", /: what we sent was not acknowledged any more \(ETIMEDOUT\)$/);
  assert.equal(said("EIO"), "the connection was cut (EIO)");
});
