import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { X509Certificate } from "node:crypto";
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { rootCertificates } from "node:tls";
import { promisify } from "node:util";
import { Authority } from "../pki/certificates.ts";
import { ROOT, RUN_SOURCES, source } from "../runtime/testing/project.ts";
import { extraAuthorities, isInstalled, signs, trustIn, withoutLeaves } from "./authorities.ts";

const folder = mkdtempSync(join(tmpdir(), "culvert-ca-"));
after(() => rmSync(folder, { recursive: true }));
const file = join(folder, "extra.pem");

test("what NODE_EXTRA_CA_CERTS adds is well known, beside what Node brings", async () => {
  const company = await Authority.create("company");
  const { cert } = company;
  const leaf = await company.issue({ cn: "leaf", usage: "server" });
  writeFileSync(file, cert + leaf.cert);
  const program = `
    const { wellKnownAuthorities } = await import(${JSON.stringify(source("./authorities.ts", import.meta.url).href)});
    console.log(JSON.stringify(wellKnownAuthorities().map((pem) => pem.trim())));`;
  const { stdout } = await promisify(execFile)(
    process.execPath,
    [...RUN_SOURCES, "--input-type=module", "--eval", program],
    { env: { ...process.env, NODE_EXTRA_CA_CERTS: file }, maxBuffer: 16 * 1024 * 1024 },
  );
  const known: readonly string[] = JSON.parse(stdout);
  assert.ok(known.includes(cert.trim()));
  assert.ok(known.length > rootCertificates.length);
  assert.ok(!known.includes(leaf.cert.trim()), "a leaf would be trusted for itself");
});

test("of a file of extra CAs those count that are whole, and one that cannot be read has none", async () => {
  const { cert } = await Authority.create("company");
  const damaged = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
  writeFileSync(file, `a comment\n${damaged}${cert}`);
  assert.deepEqual(extraAuthorities(file), [cert.trim()]);
  assert.deepEqual([extraAuthorities(join(folder, "nothing")), extraAuthorities()], [[], []]);
});

test("a CA has signed a certificate if name and key are its own, not by its name alone", async () => {
  const [one, namesake] = await Promise.all([Authority.create("Corp CA"), Authority.create("Corp CA")]);
  const leaf = new X509Certificate((await one.issue({ cn: "server", usage: "server" })).cert);
  const [ours, theirs] = [one, namesake].map(({ cert }) => new X509Certificate(cert));
  assert.ok(ours && theirs);
  assert.equal(signs([theirs, ours], leaf), true);
  assert.equal(signs([theirs], leaf), false);
  assert.equal(isInstalled(leaf), false, "nobody has installed it on this machine");
});

test("a CA of NODE_EXTRA_CA_CERTS is one that somebody has installed, and those that Node brings are not", async () => {
  const company = await Authority.create("Company CA");
  writeFileSync(file, company.cert);
  const { cert } = await company.issue({ cn: "server", usage: "server" });
  const script = `
    import { X509Certificate } from "node:crypto";
    import tls from "node:tls";
    import { isInstalled } from ${JSON.stringify(source("./authorities.ts", import.meta.url).href)};
    const of = (pem) => isInstalled(new X509Certificate(pem));
    console.log(of(process.env.LEAF), tls.rootCertificates.some(of));
  `;
  const argv = [...RUN_SOURCES, "--input-type=module", "--eval", script];
  const env = { PATH: process.env["PATH"], LEAF: cert, NODE_EXTRA_CA_CERTS: file };
  const { stdout } = await promisify(execFile)(process.execPath, argv, { env });
  assert.equal(stdout, "true false\n");
});

test("without leaves nothing else of a bundle is changed", async () => {
  const [one, other] = [await Authority.create("one"), await Authority.create("other")];
  const leaf = await one.issue({ cn: "leaf", usage: "both" });
  const bundle = `# one\n${one.cert}# other\n${other.cert}`;
  assert.equal(withoutLeaves(bundle), bundle);
  assert.deepEqual(trustIn([one.cert + leaf.cert, leaf.cert]).ca, [one.cert.trim()]);
  assert.deepEqual(trustIn(""), { ca: [], allowPartialTrustChain: true });
  assert.deepEqual(trustIn(undefined), {});
});

test("everything that opens or accepts TLS takes its CAs through trustIn", () => {
  const folders = ["agent", "router", "server", "shared", "sidecars"];
  const all = folders.flatMap((folder) => {
    const entries = readdirSync(join(ROOT, folder), { recursive: true, encoding: "utf8" });
    return entries.map((entry) => `${folder}/${entry}`);
  });
  const product = all.filter((path) => path.endsWith(".ts") && !/\.test\.ts$|\/testing\//.test(path));
  const wrong = product.filter((path) => {
    const text = readFileSync(join(ROOT, path), "utf8");
    const imports = text.matchAll(/^import (?!type )([^;]*) from "node:(?:tls|https)";$/gm);
    const opens = Array.from(imports, ([, names = ""]) => OPENS_TLS.test(names)).includes(true);
    return opens && !/trustIn\(|tlsServerOn\(/.test(text);
  });
  assert.deepEqual(wrong.sort(), [
    "agent/doctor/tls-fault.ts", // looks at a certificate that was refused, and verifies nothing
    // Whether OpenSSL takes a certificate with its key, or a group.
    "shared/kubernetes/access.ts",
    "shared/tls/key-exchange.ts",
    "shared/tls/tls-material.ts",
  ]);
});

/** In a list of imports: the whole module, or a function of it that opens TLS. */
const OPENS_TLS = /^(?:tls|https)\b|(?:^|[{\s,])(?<!type )(?:connect|createSecureContext|createServer|request|get)\b/;
