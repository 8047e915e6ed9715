import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { rootCertificates } from "node:tls";
import { promisify } from "node:util";
import { Authority } from "../pki/certificates.ts";
import { RUN_SOURCES, source } from "../runtime/testing/project.ts";
import { extraAuthorities } from "./well-known-authorities.ts";

const folder = mkdtempSync(join(tmpdir(), "culvert-ca-"));
after(() => rmSync(folder, { recursive: true }));
const file = join(folder, "extra.pem");

test("what NODE_EXTRA_CA_CERTS adds is well known, beside what Node brings", async () => {
  const { cert } = await Authority.create("company");
  writeFileSync(file, cert);
  const program = `
    const { wellKnownAuthorities } = await import(${JSON.stringify(source("./well-known-authorities.ts", import.meta.url).href)});
    console.log(JSON.stringify(wellKnownAuthorities().map((pem) => pem.trim())));`;
  const { stdout } = await promisify(execFile)(
    process.execPath,
    [...RUN_SOURCES, "--input-type=module", "--eval", program],
    { env: { ...process.env, NODE_EXTRA_CA_CERTS: file }, maxBuffer: 16 * 1024 * 1024 },
  );
  const known: readonly string[] = JSON.parse(stdout);
  assert.ok(known.includes(cert.trim()));
  assert.ok(known.length > rootCertificates.length);
});

test("of a file of extra CAs those count that are whole, and one that cannot be read has none", async () => {
  const { cert } = await Authority.create("company");
  const damaged = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
  writeFileSync(file, `a comment\n${damaged}${cert}`);
  assert.deepEqual(extraAuthorities(file), [cert.trim()]);
  assert.deepEqual([extraAuthorities(join(folder, "nothing")), extraAuthorities()], [[], []]);
});
