import assert from "node:assert/strict";
import { test } from "node:test";
import { checkServerIdentity, type PeerCertificate } from "node:tls";
import { identityWords } from "./certificate-names.ts";

function wordsFor(host: string, certificate: { subjectaltname?: string; subject?: object }): string {
  const error = checkServerIdentity(host, { subject: {}, ...certificate } as PeerCertificate);
  return identityWords(error ?? assert.fail("it has this name"));
}

for (const [names, certificate, whom] of [
  ["a host name and something else", { subjectaltname: "DNS:a.example, URI:urn:b" }, "a.example"],
  ["several", { subjectaltname: "DNS:a.example, IP Address:10.0.0.2" }, "a.example, 10.0.0.2"],
  ["more than anybody reads", { subjectaltname: "DNS:a, DNS:c, DNS:d, DNS:e, DNS:f" }, "a, c, d and 2 more"],
  ["a common name", { subject: { CN: "a.example" } }, "a.example"],
  ["several common names", { subject: { CN: ["a", "c"] } }, "a, c"],
] as const) {
  test(`a certificate with other names (${names}) is reported with the names that it has`, () => {
    for (const host of ["10.0.0.1", "b.example"]) {
      assert.equal(wordsFor(host, certificate), `the certificate is for ${whom}, not for ${host}`);
    }
  });
}

test("a certificate without any name is reported as that", () => {
  for (const host of ["10.0.0.1", "b.example"]) {
    assert.equal(wordsFor(host, {}), `the certificate has no name in it, and so not ${host}`);
  }
});

test("what is no fault of a name stays in Node's words", () => {
  assert.equal(identityWords(new Error("socket hang up")), "socket hang up");
});

test("what an unauthenticated peer's certificate says is one line, and bounded", () => {
  const long = `x\r\n\u001b[2J${"y".repeat(500)}`;
  const certificate = { subject: { CN: Array(9).fill(long) } };
  assert.match(wordsFor("::1", certificate), /^[\x20-\x7e]{1,320}$/);
});
