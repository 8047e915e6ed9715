import assert from "node:assert/strict";
import { X509Certificate } from "node:crypto";
import { test } from "node:test";
import { certificateOf } from "../pki/testing/certificates.ts";
import { type CertificateUsage, usageOf } from "./certificate-fields.ts";

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
