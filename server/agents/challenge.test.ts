import assert from "node:assert/strict";
import { test } from "node:test";
import { challenge } from "./challenge.ts";

const TOKENS = { verifier: { verify: () => Promise.reject(new Error("is not asked")), close: () => {} } };
const CERTIFICATES = { verifier: undefined };
const BASIC = `Basic ${Buffer.from("blue:abc").toString("base64")}`;

const TABLE: ReadonlyArray<readonly [rules: typeof TOKENS | typeof CERTIFICATES, sent: string | undefined, string]> = [
  [CERTIFICATES, undefined, "ClientCertificate"],
  [CERTIFICATES, "Bearer abc", "ClientCertificate"],
  [TOKENS, undefined, 'Bearer realm="culvert"'],
  [TOKENS, "Negotiate abc", 'Bearer realm="culvert"'],
  [TOKENS, "Bearer abc", 'Bearer realm="culvert", error="invalid_token"'],
  [TOKENS, BASIC, 'Bearer realm="culvert", error="invalid_token"'],
];

for (const [rules, sent, asked] of TABLE) {
  test(`who has sent ${sent ?? "nothing"} where ${rules === TOKENS ? "tokens are taken" : "certificates count alone"} is asked for ${asked}`, () => {
    assert.equal(challenge(rules, sent), asked);
  });
}
