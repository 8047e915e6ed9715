import assert from "node:assert/strict";
import { test } from "node:test";
import { LinkRefused } from "../wire/handshake.ts";
import { ABNORMAL_CLOSURE, CarrierLost, type Closed, explainClose, LINK_ENDED } from "./link-events.ts";

function lossOf(closed: Partial<Closed>): Error | undefined {
  return explainClose(
    { code: ABNORMAL_CLOSURE, reason: "", socketError: undefined, wasEnding: false, role: "client", ...closed },
    (lossCause, sentence) => new CarrierLost(sentence, { lossCause, ageMs: 0, idleMs: 0 }),
  );
}

/** The sentence for a connection that ended so, without a close frame. */
function said(code: string | undefined): string | undefined {
  const socketError = code === undefined ? undefined : Object.assign(new Error(`write ${code}`), { code });
  return lossOf({ socketError })?.message;
}

test("a lost connection is explained in a sentence that keeps the kernel's error code", () => {
  assert.equal(said(undefined), "the connection was cut: the peer, or something in between, ended it without a word");
  assert.equal(said("ECONNRESET"), "the connection was cut: the peer, or something in between, reset it (ECONNRESET)");
  assert.equal(
    said("EPIPE"),
    "the connection was cut: the peer, or something in between, had closed it when we wrote (EPIPE)",
  );
  assert.match(said("ETIMEDOUT") ?? "", /: what we sent was not acknowledged any more \(ETIMEDOUT\)$/);
  assert.equal(said("EIO"), "the connection was cut (EIO)");
});

test("a close code that is not ours ends the carrier and not the link, whatever its reason", () => {
  for (const code of [1000, 1001, 1002, 1003, 1005, 1007, 1008, 1009, 1010, 1011, 1014, 3000, 4000, 4399, 4500]) {
    for (const role of ["client", "server"] as const) {
      const loss = lossOf({ code, role, reason: "policy" });
      assert.ok(loss instanceof CarrierLost && loss.lossCause === "closed", `${code} ${role}`);
      assert.equal(loss.message, `the peer closed with ${code}: policy`);
    }
  }
});

test("a peer ends the link with a code of ours, or with the reason link_ended", () => {
  for (const code of [4400, 4450, 4457, 4499]) {
    const [client, server] = [lossOf({ code }), lossOf({ code, role: "server" })];
    assert.ok(client instanceof LinkRefused, `${code}`);
    assert.ok(server !== undefined && !(server instanceof CarrierLost), `${code}`);
  }
  assert.equal(lossOf({ code: 1000, reason: LINK_ENDED }), undefined);
  const violated = lossOf({ code: 1002, reason: `${LINK_ENDED}: MASK must be set` });
  assert.ok(violated !== undefined && !(violated instanceof CarrierLost));
});
