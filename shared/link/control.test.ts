import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { BadControlMessage, parseControl } from "./control.ts";
import { parseInnerHello } from "./inner-hello.ts";

const HELLO = { type: "hello", agentId: "a", instance: "1", software: "test", later: { unknown: true } };

test("a hello offers our version or the next one, with inner TLS as well, and no other", () => {
  const forms: Readonly<Record<string, (version: unknown) => unknown>> = {
    direct: (version) => parseControl(JSON.stringify({ ...HELLO, version })),
    outer: (version) => parseControl(JSON.stringify({ type: "hello", version, inner: true, later: [] })),
    inner: (version) => parseInnerHello(JSON.stringify({ ...HELLO, version })),
  };
  for (const [form, parse] of Object.entries(forms)) {
    for (const version of [1, 2]) assert.ok(parse(version), `${form} ${version}`);
    for (const version of [0, 3, 1.5, "1", null, undefined]) {
      assert.throws(() => parse(version), /hello.*: version must be 1 or 2; update/, `${form} ${version}`);
    }
  }
});

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
