import assert from "node:assert/strict";
import { test } from "node:test";
import { CulvertError } from "../outcomes.ts";
import {
  encodeDestination,
  encodeDestinationAnswer,
  parseDestination,
  requireDestinationAnswer,
} from "./destination-heads.ts";
import { encodeHead } from "./stream-head.ts";

const json = (head: Buffer): Buffer => head.subarray(2);
const codeOf = (code: string) => (error: unknown) => error instanceof CulvertError && error.code === code;

test("a request for a destination arrives as it was sent, with bounds", () => {
  const target = { host: "2001:db8::1", port: 6443 };
  const id = `${"a".repeat(128)}/1z`; // of the longest agent id
  const sent = encodeDestination({ target, timeoutMs: 4_000.4, id });
  assert.deepEqual(parseDestination(json(sent)), { target, timeoutMs: 4_000, id });
  const far = encodeHead({ kind: "destination", target: "kas:6443", timeoutMs: 1e12, id: "a\nb", more: 1 });
  assert.deepEqual(parseDestination(json(far)), {
    target: { host: "kas", port: 6443 },
    timeoutMs: 300_000,
    id: "a b",
  });
});

test("a malformed request is internal, and a target that is none is bad_target", () => {
  const rest = { kind: "destination", timeoutMs: 1, id: "" };
  for (const head of [{ ...rest }, { ...rest, target: 7 }, { ...rest, target: "a:1", timeoutMs: -1 }, { kind: "x" }]) {
    assert.throws(() => parseDestination(json(encodeHead(head))), codeOf("internal"), JSON.stringify(head));
  }
  assert.throws(() => parseDestination(json(encodeHead({ ...rest, target: "a" }))), codeOf("bad_target"));
});

test("the answer is that it is connected, or the server's code and sentence", () => {
  requireDestinationAnswer(json(encodeDestinationAnswer()));
  const refusal = encodeDestinationAnswer(new CulvertError("limited", "too many", { retryAfterMs: 10 }));
  assert.throws(
    () => requireDestinationAnswer(json(refusal)),
    (error) => codeOf("limited")(error) && (error as Error).message === "too many",
  );
});
