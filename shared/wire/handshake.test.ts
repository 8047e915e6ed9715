import assert from "node:assert/strict";
import { test } from "node:test";
import { CloseCode } from "./handshake.ts";

test("close codes are RFC 6455's own or between 4400 and 4499, and no two ends share one", () => {
  const codes = Object.values(CloseCode);
  assert.equal(new Set(codes).size, codes.length);
  for (const [name, code] of Object.entries(CloseCode)) {
    assert.ok((code >= 1000 && code <= 1015) || (code >= 4400 && code <= 4499), `${name} is ${code}`);
  }
});
