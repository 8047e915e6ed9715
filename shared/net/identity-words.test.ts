import assert from "node:assert/strict";
import { test } from "node:test";
import { checkServerIdentity, type PeerCertificate } from "node:tls";
import { identityWords } from "./identity-words.ts";

function wordsFor(host: string, certificate: { subjectaltname?: string; subject?: object }): string {
  const error = checkServerIdentity(host, { subject: {}, ...certificate } as PeerCertificate);
  return identityWords(error ?? assert.fail("it has this name"));
}

for (const [names, certificate, only] of [
  ["host names", { subjectaltname: "DNS:a.example, URI:urn:b" }, "only DNS:a.example, URI:urn:b"],
  ["a common name", { subject: { CN: "10.0.0.1" } }, "only CN=10.0.0.1"],
  ["several common names", { subject: { CN: ["a", "b"] } }, "only CN=a, CN=b"],
  ["no name", {}, "nor anything else"],
] as const) {
  test(`a peer that is called by an address, and whose certificate has ${names}, is told as such`, () => {
    assert.equal(wordsFor("10.0.0.1", certificate), `the certificate names no addresses, and so not 10.0.0.1, ${only}`);
  });
}

for (const [names, certificate, only] of [
  ["an address", { subjectaltname: "IP Address:10.0.0.1", subject: { CN: "" } }, "only IP Address:10.0.0.1"],
  ["no name", {}, "nor anything else"],
] as const) {
  test(`a peer that is called by a name, and whose certificate has ${names}, is told as such`, () => {
    assert.equal(wordsFor("b.example", certificate), `the certificate names no host, and so not b.example, ${only}`);
  });
}

for (const [names, certificate, only] of [
  ["another common name", { subject: { CN: "a.example" } }, "only CN=a.example"],
  ["several others", { subject: { CN: ["a", "c"] } }, "only CN=a, CN=c"],
  [
    "an address and a common name",
    { subjectaltname: "IP Address:10.0.0.1", subject: { CN: "a" } },
    "only IP Address:10.0.0.1, CN=a",
  ],
] as const) {
  test(`a peer that is called by a name, and whose certificate has ${names}, is not told that there is no host`, () => {
    assert.equal(wordsFor("b.example", certificate), `the certificate does not name b.example, ${only}`);
  });
}

test("what else is wrong with a name stays in Node's words", () => {
  const addresses = { subjectaltname: "DNS:a.example, IP Address:10.0.0.2" };
  assert.match(wordsFor("10.0.0.1", addresses), /IP: 10\.0\.0\.1 is not in the cert's list: 10\.0\.0\.2$/);
  assert.match(wordsFor("b.example", addresses), /Host: b\.example\. is not in the cert's altnames: DNS:a\.example/);
  assert.equal(identityWords(new Error("socket hang up")), "socket hang up");
});

test("what a stranger's certificate says is one line, and bounded", () => {
  assert.match(wordsFor("::1", { subject: { CN: `x\r\n\u001b[2J${"y".repeat(500)}` } }), /^[\x20-\x7e]{1,300}$/);
});
