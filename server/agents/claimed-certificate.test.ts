import assert from "node:assert/strict";
import { test } from "node:test";
import { claimedCertificate } from "./claimed-certificate.ts";

const CLAIMS = [
  "x-forwarded-client-cert",
  "x-forwarded-tls-client-cert-info",
  "x-amzn-mtls-clientcert-leaf",
  "x-ssl-client-cert",
  "x-ssl-client-dn",
  "ssl-client-subject-dn",
  "x-client-cert-present",
  "client-cert",
  "client-cert-chain",
];
const OTHERS = [
  "host",
  "authorization",
  "x-forwarded-for",
  "x-forwarded-proto",
  "sec-websocket-key",
  "client-certainly",
];

test("the headers are known by which balancers tell of a client certificate, and no others", () => {
  for (const name of CLAIMS) assert.equal(claimedCertificate({ host: "x", [name]: "CN=agent" }), name);
  for (const name of OTHERS) assert.equal(claimedCertificate({ [name]: "CN=agent" }), undefined, name);
});
