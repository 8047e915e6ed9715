import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { BadControlMessage, parseControl } from "./control.ts";

test("an ack says the same however it is spelled", () => {
  fc.assert(
    fc.property(fc.maxSafeNat(), (received) => {
      const ack = { type: "ack", received };
      assert.deepEqual(parseControl(JSON.stringify(ack)), ack);
      assert.deepEqual(parseControl(JSON.stringify(ack, undefined, 1)), ack);
      assert.deepEqual(parseControl(JSON.stringify({ received, later: true, type: "ack" })), ack);
    }),
  );
});

test("an ack of what is no offset is refused", () => {
  const offsets = ["-1", "1.5", "007", "9007199254740992", "1e300", '"1"', "null", ""];
  for (const received of offsets) {
    assert.throws(() => parseControl(`{"type":"ack","received":${received}}`), BadControlMessage, received);
  }
});
