import assert from "node:assert/strict";
import { generateKeyPairSync } from "node:crypto";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { hugeFileAt, pipeAt } from "../documents/testing/files.ts";
import { Authority } from "../pki/certificates.ts";
import { certificateOf } from "../pki/testing/certificates.ts";
import { loadClientTls, loadServerTls, TlsFileError, unfit } from "./tls-material.ts";

let dir: string;
let pipe: Disposable;
const at = (name: string): string => join(dir, name);
const recently = new Date(Math.floor(Date.now() / 1000) * 1000 - 60_000);
const soon = new Date(Math.ceil(Date.now() / 1000) * 1000 + 3_600_000);

before(async () => {
  dir = await mkdtemp(join(tmpdir(), "culvert-material-"));
  const authority = await Authority.create("ca");
  const one = await authority.issue({ cn: "one", usage: "client", notBefore: recently, notAfter: soon });
  const other = await authority.issue({ cn: "other", usage: "client" });
  const { privateKey } = generateKeyPairSync("ec", { namedCurve: "P-256" });
  const cipher = { type: "pkcs8", format: "pem", cipher: "aes-256-cbc", passphrase: "x" } as const;
  const files: Record<string, string> = {
    "ca.crt": authority.cert,
    "one.crt": `subject=one\n${one.cert}${authority.cert}`,
    "one.key": one.key,
    "other.key": other.key,
    "wrong-order.crt": `${authority.cert}${one.cert}`,
    "damaged.crt": one.cert.replace(/\n.{40}/, "\nAAAA"),
    "damaged.key": one.key.replace(/\n.{40}/, "\nAAAA"),
    "encrypted.key": privateKey.export(cipher).toString(),
    empty: "",
    text: "hello",
  };
  for (const [name, content] of Object.entries(files)) await writeFile(at(name), content);
  hugeFileAt(at("huge"));
  pipe = pipeAt(at("pipe"));
});

after(() => {
  pipe[Symbol.dispose]();
  return rm(dir, { recursive: true });
});

const files = (certFile: string, keyFile: string, caFile = "ca.crt") => ({
  certFile: at(certFile),
  keyFile: at(keyFile),
  caFile: at(caFile),
});

test("a chain, its key and a CA are loaded, with its latest start and its earliest end", () => {
  const material = loadServerTls(files("one.crt", "one.key"));
  assert.deepEqual(material.notBefore, recently);
  assert.deepEqual(material.notAfter, soon);
  assert.match(material.ca, /BEGIN CERTIFICATE/);
});

test("a certificate is refused before its first moment, and from its last one on", () => {
  const validity = { notBefore: new Date("2026-06-01T00:00:00Z"), notAfter: new Date("2026-07-01T00:00:00Z") };
  const at = (time: string) => unfit(validity, new Date(time));
  assert.equal(at("2026-05-31T23:59:59Z"), "not valid before 2026-06-01T00:00:00.000Z");
  assert.equal(at("2026-06-01T00:00:00Z"), undefined);
  assert.equal(at("2026-06-30T23:59:59Z"), undefined);
  assert.equal(at("2026-07-01T00:00:00Z"), "expired on 2026-07-01T00:00:00.000Z");
});

test("a client may leave out its certificate, its CA, or all", () => {
  assert.deepEqual(loadClientTls({ certFile: "", keyFile: "", caFile: "" }), {});
  assert.deepEqual(Object.keys(loadClientTls({ caFile: at("ca.crt") })), ["ca"]);
  const { certFile, keyFile } = files("one.crt", "one.key");
  const pair = ["cert", "key", "lacksServerAuth", "notAfter", "notBefore"];
  assert.deepEqual(Object.keys(loadClientTls({ certFile, keyFile })).sort(), pair);
  assert.throws(() => loadClientTls({ certFile }), /needs its private key/);
  assert.throws(() => loadClientTls({ keyFile }), /needs its certificate/);
});

for (const [cert, key, ca, file, sentence] of [
  [
    "absent.crt",
    "one.key",
    "ca.crt",
    "certFile",
    /^the certificate \/.*\/absent\.crt cannot be read: there is no such/,
  ],
  ["one.crt", "absent.key", "ca.crt", "keyFile", /^the private key \/.*\/absent\.key cannot be read: there is no such/],
  ["one.crt", "one.key", "absent.crt", "caFile", /^the CA certificate \/.*\/absent\.crt cannot be read/],
  ["one.crt", "one.key", ".", "caFile", /it is a directory/],
  [
    "pipe",
    "one.key",
    "ca.crt",
    "certFile",
    /pipe cannot be read: it is a pipe, a socket or a device, not a regular file$/,
  ],
  [
    "one.crt",
    "pipe",
    "ca.crt",
    "keyFile",
    /pipe cannot be read: it is a pipe, a socket or a device, not a regular file$/,
  ],
  ["one.crt", "one.key", "huge", "caFile", /huge cannot be read: it is larger than 4 MiB$/],
  [
    "one.crt",
    "other.key",
    "ca.crt",
    "keyFile",
    /other\.key does not belong to the first certificate in \/.*\/one\.crt$/,
  ],
  ["wrong-order.crt", "one.key", "ca.crt", "keyFile", /does not belong to the first certificate/],
  ["one.key", "one.crt", "ca.crt", "certFile", /one\.key holds no PEM certificate/],
  ["one.crt", "one.crt", "ca.crt", "keyFile", /one\.crt holds no PEM private key/],
  ["empty", "one.key", "ca.crt", "certFile", /holds no PEM certificate/],
  ["one.crt", "text", "ca.crt", "keyFile", /holds no PEM private key/],
  ["one.crt", "one.key", "empty", "caFile", /^the CA certificate \/.*\/empty holds no PEM certificate/],
  ["damaged.crt", "one.key", "ca.crt", "certFile", /damaged\.crt holds a damaged certificate/],
  ["one.crt", "damaged.key", "ca.crt", "keyFile", /damaged\.key is damaged/],
  ["one.crt", "encrypted.key", "ca.crt", "keyFile", /is encrypted: store it without a passphrase/],
] as const) {
  test(`certificate ${cert}, key ${key}, CA ${ca}: a sentence that names the file`, () => {
    const says = (error: unknown): boolean =>
      error instanceof TlsFileError && error.file === file && sentence.test(error.message);
    assert.throws(() => loadServerTls(files(cert, key, ca)), says);
    assert.throws(() => loadClientTls(files(cert, key, ca)), says);
  });
}

test("a CA file with nothing but a leaf is refused, and one with a CA beside it is not", async () => {
  const authority = await Authority.create("ca");
  const { cert } = await authority.issue({ cn: "agent", usage: "client" });
  await writeFile(at("leaf.crt"), cert);
  assert.throws(
    () => loadClientTls({ caFile: at("leaf.crt") }),
    (error) =>
      error instanceof TlsFileError &&
      error.file === "caFile" &&
      /leaf\.crt holds no CA: "CN=agent" is a leaf; give the certificate of the CA that has signed it$/.test(
        error.message,
      ),
  );
  await writeFile(at("leaf.crt"), cert + authority.cert);
  assert.equal(loadClientTls({ caFile: at("leaf.crt") }).ca, cert + authority.cert);
  const self = await certificateOf({ cn: "server", isCa: false });
  await writeFile(at("leaf.crt"), self.cert);
  assert.equal(loadClientTls({ caFile: at("leaf.crt") }).ca, self.cert, "it is trusted as it is");
});
