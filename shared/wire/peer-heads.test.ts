import assert from "node:assert/strict";
import { test } from "node:test";
import { CulvertError, OUTCOMES, type OutcomeCode } from "../outcomes.ts";
import { encodePeerAnswer, encodePeerOpen, parsePeerAnswer, parsePeerOpen, streamKind } from "./peer-heads.ts";

const REQUEST = { cluster: "blue", target: { host: "fd00::1", port: 443 }, timeoutMs: 1_000, id: "srv-1/a" };

function json(head: Buffer): Buffer {
  return head.subarray(2);
}

test("a request and an answer arrive as they were sent", () => {
  const open = json(encodePeerOpen({ ...REQUEST, timed: true }));
  assert.equal(streamKind(open), "peer");
  assert.deepEqual(parsePeerOpen(open), { ...REQUEST, timed: true });
  const answer = { ok: true, agent: "a-1", address: "[fd00::1]:443", times: { dnsMs: 1, dialMs: 2 } } as const;
  assert.deepEqual(parsePeerAnswer(json(encodePeerAnswer(answer))), answer);
});

test("every outcome that a caller can be answered with comes back with its code, its sentence and what belongs to it", () => {
  for (const code of Object.keys(OUTCOMES) as OutcomeCode[]) {
    const error = new CulvertError(code, `the sentence of ${code}`, {
      acknowledged: true,
      retryAfterMs: 1_500,
      refusedBy: "agent",
    });
    const parsed = parsePeerAnswer(json(encodePeerAnswer({ ok: false, error })));
    assert.ok(!parsed.ok);
    const { message, acknowledged, retryAfterMs, refusedBy } = parsed.error;
    assert.equal(parsed.error.code, OUTCOMES[code].http === undefined ? "internal" : code);
    assert.deepEqual(
      [message, acknowledged, retryAfterMs, refusedBy],
      [`the sentence of ${code}`, true, 1_500, "agent"],
    );
  }
});

test("what a peer sends is one printable line of bounded length, and codes that are not known become internal", () => {
  const long = json(
    encodePeerAnswer({ ok: false, error: new CulvertError("no_agent", `a\r\nb ${"x".repeat(9_000)}`) }),
  );
  const parsed = parsePeerAnswer(long);
  assert.ok(!parsed.ok && /^a b x+\.\.\.$/.test(parsed.error.message) && parsed.error.message.length <= 1_000);
  const later = parsePeerAnswer(Buffer.from('{"error":"of_a_later_version","detail":""}'));
  assert.ok(!later.ok && later.error.code === "internal");
  assert.equal(later.error.message, "the other server answered of_a_later_version");
});

test("a head that is no request is refused with its outcome", () => {
  const rows: [string, OutcomeCode][] = [
    ["", "internal"],
    ["[]", "internal"],
    ['{"kind":"connect","target":"a:1"}', "forbidden"],
    [JSON.stringify({ ...REQUEST, kind: "peer", hops: 2, target: "a:1" }), "forbidden"],
    [JSON.stringify({ ...REQUEST, kind: "peer", hops: 0, target: "a:1" }), "internal"],
    [JSON.stringify({ ...REQUEST, kind: "peer", hops: 1, target: "a" }), "bad_target"],
    [JSON.stringify({ ...REQUEST, kind: "peer", hops: 1, target: "a:1", id: "x".repeat(300) }), "internal"],
  ];
  for (const [text, code] of rows) {
    assert.throws(
      () => parsePeerOpen(Buffer.from(text)),
      (error) => error instanceof CulvertError && error.code === code,
      text,
    );
  }
  assert.throws(() => parsePeerAnswer(Buffer.from("{}")), /malformed/);
});
