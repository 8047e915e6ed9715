import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { X509Certificate } from "node:crypto";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { promisify } from "node:util";
import { Authority } from "../pki/certificates.ts";
import { RUN_SOURCES, source } from "../runtime/testing/project.ts";
import { isInstalled, signs } from "./installed-authorities.ts";

test("a CA has signed a certificate if name and key are its own, not by its name alone", async () => {
  const [one, namesake] = await Promise.all([Authority.create("Corp CA"), Authority.create("Corp CA")]);
  const leaf = new X509Certificate((await one.issue({ cn: "server", usage: "server" })).cert);
  const [ours, theirs] = [one, namesake].map(({ cert }) => new X509Certificate(cert));
  assert.ok(ours && theirs);
  assert.equal(signs([theirs, ours], leaf), true);
  assert.equal(signs([theirs], leaf), false);
  assert.equal(isInstalled(leaf), false, "nobody has installed it on this machine");
});

test("a CA of NODE_EXTRA_CA_CERTS is one that somebody has installed, and those that Node brings are not", async (t) => {
  const folder = await mkdtemp(join(tmpdir(), "culvert-installed-"));
  t.after(() => rm(folder, { recursive: true }));
  const company = await Authority.create("Company CA");
  const extra = join(folder, "extra.crt");
  await writeFile(extra, company.cert);
  const { cert } = await company.issue({ cn: "server", usage: "server" });
  const script = `
    import { X509Certificate } from "node:crypto";
    import tls from "node:tls";
    import { isInstalled } from ${JSON.stringify(source("./installed-authorities.ts", import.meta.url).href)};
    const of = (pem) => isInstalled(new X509Certificate(pem));
    console.log(of(process.env.LEAF), tls.rootCertificates.some(of));
  `;
  const argv = [...RUN_SOURCES, "--input-type=module", "--eval", script];
  const env = { PATH: process.env["PATH"], LEAF: cert, NODE_EXTRA_CA_CERTS: extra };
  const { stdout } = await promisify(execFile)(process.execPath, argv, { env });
  assert.equal(stdout, "true false\n");
});
