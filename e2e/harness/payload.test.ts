import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { test } from "node:test";
import { Payload, PayloadCheck } from "./payload.ts";

const BYTES = 3_000_000; // over the end of the pool, twice

const whole = (seed: number): Buffer => new Payload(seed).whole(BYTES);

test("a payload is the same bytes in any pieces, and its digest is theirs", () => {
  const bytes = whole(7);
  const check = new PayloadCheck(7);
  for (let at = 0; at < BYTES; at += 77_777) check.take(bytes.subarray(at, at + 77_777));
  check.expect(BYTES, "the payload");
  assert.equal(createHash("sha256").update(bytes).digest("hex"), new Payload(7).sha256(BYTES));
});

test("a byte that is lost, added, changed or another payload's is found, with its place", () => {
  const bytes = whole(7);
  const changed = Buffer.from(bytes);
  changed[2_000_000] = (changed[2_000_000] ?? 0) ^ 1;
  for (const [wrong, expected] of [
    [[bytes.subarray(0, -1)], /2999999 bytes of 3000000/],
    [[bytes, Buffer.alloc(1)], /other bytes than were sent|3000001 bytes/],
    [[bytes.subarray(0, 500_000), bytes.subarray(500_001)], /other bytes than were sent/],
    [[changed], /other bytes than were sent/],
    [[whole(8)], /other bytes than were sent, from 0 on/],
  ] as const) {
    const check = new PayloadCheck(7);
    for (const chunk of wrong) check.take(chunk);
    assert.throws(() => check.expect(BYTES, "the payload"), expected);
  }
});
