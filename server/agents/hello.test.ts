import assert from "node:assert/strict";
import { test } from "node:test";
import { type PeerIdentity, parsePattern } from "../../shared/tls/identity.ts";
import type { Credential } from "../tunnels/links.ts";
import { graceOf, requireStillTrusted } from "./hello.ts";

const PEER: PeerIdentity = {
  ...{ cn: "agent", o: [], dns: [], uri: [], fingerprint256: "AA" },
  ...{ notAfter: new Date(), chain: [] },
};
const BY_CERTIFICATE: Credential = { identity: "CN=agent", peer: PEER, ca: "the CA", token: undefined };
const RULES = { ca: "the CA", identities: [parsePattern("CN=agent")], crlFault: () => undefined };

test("a credential that was verified before the hello must be accepted by the present rules", () => {
  requireStillTrusted(BY_CERTIFICATE, RULES);
  const changed = /trust of this cluster has changed/;
  assert.throws(() => requireStillTrusted(BY_CERTIFICATE, { ...RULES, ca: "another CA" }), changed);
  assert.throws(
    () => requireStillTrusted(BY_CERTIFICATE, { ...RULES, identities: [parsePattern("CN=other")] }),
    changed,
  );
  assert.throws(() => requireStillTrusted(BY_CERTIFICATE, { ...RULES, crlFault: () => "is revoked" }), changed);
  const byToken: Credential = { identity: "SUB=agent", peer: undefined, ca: undefined, token: undefined };
  requireStillTrusted(byToken, { ...RULES, ca: "another CA" });
});

test("a peer that only measures has no grace", () => {
  assert.deepEqual([graceOf({ probe: true }, { linkGraceMs: 30 }), graceOf({}, { linkGraceMs: 30 })], [0, 30]);
});
