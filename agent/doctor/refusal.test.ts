import assert from "node:assert/strict";
import { test } from "node:test";
import { clockNote } from "../../shared/tls/clock-skew.ts";
import { CloseCode, LinkRefused } from "../../shared/wire/handshake.ts";
import { refusalFinding } from "./refusal.ts";
import type { Finding } from "./steps.ts";

const REFUSALS: ReadonlyArray<readonly [status: number, reason: string, outOfTime: Finding["outOfTime"]]> = [
  [401, "the client certificate expired on 2026-06-14T12:00:00Z", "ended"],
  [401, "the CA of the client certificate has expired", "ended"],
  [401, "the client certificate is not valid before 2026-06-16T12:00:00Z: check both clocks", "early"],
  [401, "the CA of the client certificate is not valid yet: check both clocks", "early"],
  [
    401,
    "the token expired at 2026-06-14T12:00:00Z: the agent's token file holds an old one, or a clock is wrong",
    "ended",
  ],
  [401, "the token is not valid yet: check both clocks", "early"],
  [401, 'the API server does not accept the token for "culvert": service account token is not valid yet', "early"],
  [401, "no client certificate was sent, or none of a CA that is accepted here", undefined],
  [401, "the token is signed by a key that is not the issuer's", undefined],
  [403, "the client certificate CN=expired is not among --agent-identities", undefined],
  [429, 'cluster "blue" has 100 agents (--max-agents)', undefined],
  [503, "this server is shutting down: come back in 1 s", undefined],
];

test("of the server's refusals those that speak of time may be a clock's", () => {
  for (const [status, reason, outOfTime] of REFUSALS) {
    const expected = { culprit: "not_admitted", by: reason, ...(outOfTime && { outOfTime }) };
    assert.deepEqual(refusalFinding(new LinkRefused({ status, reason })), expected);
  }
  const { unauthenticated: closeCode, duplicate } = CloseCode;
  const reason = "the token is not valid yet: check both clocks";
  assert.equal(refusalFinding(new LinkRefused({ closeCode, reason })).outOfTime, "early");
  assert.equal(refusalFinding(new LinkRefused({ closeCode: duplicate, reason: "it expired" })).outOfTime, undefined);
});

test("what the agent has put behind the server's words is not the server's", () => {
  const now = Date.now();
  const note = clockNote(new Date(now - 86_400_000).toUTCString(), now);
  assert.match(note, /1 day ahead/);
  const reason = "no client certificate was sent; and none is needed";
  assert.equal(refusalFinding(new LinkRefused({ status: 401, reason: `${reason}${note}` })).by, reason);
});
