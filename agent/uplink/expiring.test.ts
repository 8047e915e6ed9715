import assert from "node:assert/strict";
import { test } from "node:test";
import { lifeStageOf } from "../../shared/tls/expiry.ts";
import type { Credentials } from "./credentials.ts";
import { AgentExpiry } from "./expiring.ts";

const FILES = { cluster: "", caCert: "", agentCert: "", agentKey: "", serviceAccountTokenPath: "/token" };
const DAY = 86_400_000;

/** The word on a token with these dates, relative to now in ms. */
function stateOf(expiresIn: number, issuedIn?: number): string | undefined {
  const now = Date.now();
  const issued = issuedIn === undefined ? {} : { issuedAt: new Date(now + issuedIn) };
  const held: Credentials = { token: { text: "a token", expiresAt: new Date(now + expiresIn), ...issued } };
  const [token] = new AgentExpiry(FILES, () => held);
  return token === undefined ? "none" : lifeStageOf(token, new Date(now))?.state;
}

test("a token that does not say when it was made is valid until its end, and no notice is given", () => {
  assert.equal(stateOf(30 * DAY), undefined);
  assert.equal(stateOf(60_000), undefined);
  assert.equal(stateOf(-60_000), "over");
});

test("a token that says when it was made gets its notice", () => {
  assert.equal(stateOf(60_000, -DAY), "ending");
  assert.equal(stateOf(DAY, DAY / 2), "early");
});
