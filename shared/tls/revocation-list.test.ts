import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { X509Certificate } from "node:crypto";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { until } from "../basics/testing/wait.ts";
import { hugeFileAt, pipeAt } from "../documents/testing/files.ts";
import { Authority } from "../pki/certificates.ts";
import { certificateOf, crlOf, derOf, emptyExtension as extension } from "../pki/testing/certificates.ts";
import { loadCrls, RevocationList, WatchedCrl } from "./revocation-list.ts";

/** The kind of public keys of elliptic curves (RFC 5480 §2.1.1). */
const EC_KEY = Buffer.from("06072a8648ce3d0201", "hex");

test("a CA whose key is of a kind that Node does not know has no CRL, and ends no process", async () => {
  const authority = await Authority.create("odd");
  const raw = Buffer.from(new X509Certificate(authority.cert).raw);
  raw[raw.indexOf(EC_KEY) + EC_KEY.length - 1] = 0x7f;
  const odd = new X509Certificate(raw);
  assert.throws(() => odd.publicKey);
  const pem = await crlOf(authority, []);
  const list = new RevocationList(derOf(pem));
  assert.equal(list.isOf(new X509Certificate(authority.cert)), true);
  assert.equal(list.isOf(odd), false);
});

const folder = mkdtempSync(join(tmpdir(), "culvert-crl-"));
after(() => rmSync(folder, { recursive: true }));

function written(text: string | Buffer, name = "crl.pem"): string {
  const path = join(folder, name);
  writeFileSync(path, text);
  return path;
}

test("the CRLs of a file are read, with their dates, and each is of the CA that has signed it", async () => {
  const [one, two] = [await certificateOf({ cn: "one" }), await certificateOf({ cn: "two" })];
  const nextUpdate = new Date(Date.UTC(2060, 1, 2, 3, 4, 5));
  const path = written((await crlOf(one, [], { nextUpdate })) + (await crlOf(two, [])));
  const [first, second, more] = loadCrls(path).lists;
  assert.deepEqual([first?.nextUpdate, second?.nextUpdate, more], [nextUpdate, undefined, undefined]);
  const ca = new X509Certificate(one.cert);
  assert.deepEqual([first?.isOf(ca), second?.isOf(ca)], [true, false]);
});

test("what OpenSSL makes is read: RSA, RSASSA-PSS and Ed25519, with serial numbers of every length", () => {
  const run = (...args: string[]) => execFileSync("openssl", args, { cwd: folder, stdio: "pipe" });
  const KINDS = [
    ["rsa", ["-newkey", "rsa:2048"], ["-md", "sha384"]],
    ["pss", ["-newkey", "rsa:2048"], ["-md", "sha256", "-sigopt", "rsa_padding_mode:pss"]],
    ["ed", ["-newkey", "ed25519"], ["-md", "default"]],
  ] as const;
  for (const [name, key, signing] of KINDS) {
    const subject = ["-subj", `/CN=${name}`, "-days", "1", "-addext", "basicConstraints=critical,CA:true"];
    run("req", "-x509", "-nodes", ...key, "-keyout", `${name}.key`, "-out", `${name}.crt`, ...subject);
    const serials = ["01", "80", "FF00", "7FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF", "-05", "-8F01"];
    const row = (serial: string) => `R\t300101000000Z\t260101000000Z\t${serial}\tunknown\t/CN=x\n`;
    writeFileSync(join(folder, `${name}.db`), serials.map(row).join(""));
    writeFileSync(join(folder, `${name}.cnf`), `[ca]\ndefault_ca=d\n[d]\ndatabase=${name}.db\ndefault_crl_days=7\n`);
    const out = ["-config", `${name}.cnf`, "-keyfile", `${name}.key`, "-cert", `${name}.crt`, "-out", `${name}.crl`];
    run("ca", "-gencrl", ...out, ...signing);
    const [list] = loadCrls(join(folder, `${name}.crl`)).lists;
    assert.equal(list?.isOf(new X509Certificate(readFileSync(join(folder, `${name}.crt`)))), true, name);
    for (const serial of serials) {
      const leaf = [
        "-subj",
        "/CN=leaf",
        "-days",
        "1",
        "-set_serial",
        serial.replace(/^-?/, "$&0x"),
        "-newkey",
        "ed25519",
        "-nodes",
      ];
      run("req", "-x509", ...leaf, "-keyout", "leaf.key", "-out", "leaf.crt");
      assert.equal(list?.has(new X509Certificate(readFileSync(join(folder, "leaf.crt")))), true, `${name} ${serial}`);
    }
  }
});

test("a file that cannot be used is refused with its path and the reason", async () => {
  const ca = await certificateOf({ cn: "ca" });
  const good = await crlOf(ca, [ca]);
  const pemOf = (der: Buffer) => `-----BEGIN X509 CRL-----\n${der.toString("base64")}\n-----END X509 CRL-----\n`;
  const der = derOf(good);
  for (const [text, says] of [
    ["", /holds no PEM CRL/],
    [ca.cert, /holds no PEM CRL/],
    [good.slice(0, -30), /holds a damaged CRL/],
    [pemOf(der.subarray(0, 60)), /CRL 1 in it is not DER/],
    [good + pemOf(Buffer.from("3000", "hex")), /CRL 2 in it is no CRL/],
    [good.padEnd(4 * 1_048_576 + 1), /larger than 4 MiB/],
    [await crlOf(ca, [], { extensions: [extension("2.5.29.27", true)] }), /is a delta CRL/],
    [await crlOf(ca, [], { extensions: [extension("1.2.3.4", true)] }), /critical extension that is not known/],
    [await crlOf(ca, [ca], { entryExtensions: [extension("2.5.29.29", true)] }), /an indirect CRL/],
  ] as const) {
    const path = written(text);
    assert.throws(() => loadCrls(path), { name: "CrlFileError", message: new RegExp(`${path}.*${says.source}`, "s") });
  }
  assert.equal(loadCrls(written(await crlOf(ca, [], { extensions: [extension("2.5.29.28", true)] }))).lists.length, 1);
  assert.throws(() => loadCrls(join(folder, "missing")), /missing cannot be read: /);
  using _pipe = pipeAt(join(folder, "pipe"));
  assert.throws(() => loadCrls(join(folder, "pipe")), /pipe cannot be read: it is a pipe, a socket or a device, not a/);
  hugeFileAt(join(folder, "huge"));
  assert.throws(() => loadCrls(join(folder, "huge")), /huge cannot be read: it is larger than 4 MiB/);
});

test("no cut or changed byte of a CRL is anything but an error or a CRL that nobody has signed", async () => {
  const ca = await certificateOf({ cn: "ca" });
  const anchor = new X509Certificate(ca.cert);
  const der = derOf(await crlOf(ca, [ca], { nextUpdate: new Date() }));
  assert.equal(new RevocationList(der).isOf(anchor), true);
  for (let at = 0; at < der.length; at++) {
    const changed = Buffer.from(der);
    changed[at] = (changed[at] ?? 0) ^ 0xff;
    for (const bytes of [changed, der.subarray(0, at)]) {
      let isOf = false;
      try {
        isOf = new RevocationList(bytes).isOf(anchor);
      } catch (error) {
        assert.ok(error instanceof Error && !(error instanceof RangeError), String(error));
      }
      assert.equal(isOf, false, `byte ${at}`);
    }
  }
});

test("a watched file is read again when it changes, and a broken one keeps the old one in use and says so", async () => {
  const ca = await certificateOf({ cn: "ca" });
  const path = written(await crlOf(ca, []), "watched.pem");
  const logged: string[] = [];
  const log = {
    info: (_fields: object, message: string) => logged.push(message),
    error: (_fields: object, message: string) => logged.push(message),
  };
  const renewed = { times: 0 };
  const watched = new WatchedCrl(path, { log, onRenewed: () => renewed.times++, watch: { settleMs: 20 } });
  after(() => watched.close());
  const before = watched.content;
  written("nonsense", "watched.pem");
  await until(() => watched.problem !== undefined);
  assert.deepEqual([watched.content, renewed.times], [before, 0]);
  assert.match(watched.problem ?? "", /watched.pem holds no PEM CRL/);
  written(await crlOf(ca, [ca]), "watched.pem");
  await until(() => renewed.times === 1);
  assert.deepEqual([watched.problem, watched.content === before], [undefined, false]);
  assert.deepEqual(logged, ["a new CRL file is not usable, the old one stays", "CRLs were read again"]);
});
