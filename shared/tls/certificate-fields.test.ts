import assert from "node:assert/strict";
import { X509Certificate } from "node:crypto";
import { test } from "node:test";
import { certificateOf } from "../pki/testing/certificates.ts";
import { type CertificateUsage, parseAltNames, usageOf } from "./certificate-fields.ts";

const PURPOSE = "1.3.6.1.5.5.7.3";
const [SERVER, CLIENT, CODE] = [`${PURPOSE}.1`, `${PURPOSE}.2`, `${PURPOSE}.3`];

for (const [what, extendedUsages, usage] of [
  ["nothing", undefined, { servers: true, clients: true, any: true }],
  ["serverAuth", [SERVER], { servers: true, clients: false, any: false }],
  ["clientAuth", [CLIENT], { servers: false, clients: true, any: false }],
  ["both", [CLIENT, SERVER], { servers: true, clients: true, any: false }],
  ["something else", [CODE], { servers: false, clients: false, any: false }],
  ["anything", ["2.5.29.37.0"], { servers: false, clients: false, any: true }],
] as const satisfies readonly (readonly [string, readonly string[] | undefined, CertificateUsage])[]) {
  test(`an extended key usage that says ${what} is read as that`, async () => {
    const { cert } = await certificateOf({ cn: "x", isCa: false, ...(extendedUsages && { extendedUsages }) });
    assert.deepEqual(usageOf(new X509Certificate(cert)), usage);
  });
}

for (const [text, expected] of [
  ["", []],
  ["DNS:a, URI:b:c", ["DNS a", "URI b:c"]],
  ['URI:"spiffe://a/b\\u002c DNS:evil", DNS:x', ["URI spiffe://a/b, DNS:evil", "DNS x"]],
  ['DNS:"a\\"b", DNS:c', ['DNS a"b', "DNS c"]],
  ['othername:X:"a\\u002c DNS:evil", DNS:c', ['othername X:"a\\u002c DNS:evil"', "DNS c"]],
  ["IP Address:0:0:0:0:0:0:0:1, DNS:c", ["IP Address 0:0:0:0:0:0:0:1", "DNS c"]],
] as const) {
  test(`the subjectAltName ${text} is read without mistaking a value for a name`, () => {
    assert.deepEqual(
      parseAltNames(text).map(({ kind, value }) => `${kind} ${value}`),
      expected,
    );
  });
}

test("a subjectAltName that cannot be read is an error, in linear time", () => {
  assert.throws(() => parseAltNames('DNS:a"b'), /cannot be read/);
  assert.throws(() => parseAltNames("nothing"), /cannot be read/);
  assert.throws(() => parseAltNames(`DNS:${"a".repeat(1e6)}"`), /cannot be read/);
});
