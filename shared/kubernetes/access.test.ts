import assert from "node:assert/strict";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { stringify } from "yaml";
import { folderOf, hugeFileAt, pipeAt } from "../documents/testing/files.ts";
import { Authority } from "../pki/certificates.ts";
import { checkAccess, inCluster, kubeconfig } from "./access.ts";

interface Parts {
  readonly cluster?: object;
  readonly user?: object;
  readonly top?: object;
}

/** A kubeconfig of two contexts, the second of which is the current one. */
function configOf({ cluster = {}, user = { token: "t" }, top = {} }: Parts): string {
  return stringify({
    apiVersion: "v1",
    kind: "Config",
    "current-context": "second",
    contexts: [
      { name: "first", context: { cluster: "other", user: "other" } },
      { name: "second", context: { cluster: "c", user: "u", namespace: "n" } },
    ],
    clusters: [
      { name: "other", cluster: { server: "https://other" } },
      { name: "c", cluster: { server: "https://api.example:6443", ...cluster } },
    ],
    users: [
      { name: "other", user: { exec: { command: "aws" } } },
      { name: "u", user },
    ],
    ...top,
  });
}

test("the current context counts; paths are relative to the file, and everything is read again at each call", async (t) => {
  const dir = folderOf(t);
  const path = join(dir, "kubeconfig");
  mkdirSync(join(dir, "pki"));
  for (const name of ["ca", "crt", "key", "token"]) writeFileSync(join(dir, "pki", name), `${name} 1\n`);
  const cluster = { "certificate-authority": "pki/ca", "tls-server-name": "kubernetes" };
  const pair = { "client-certificate": "pki/crt", "client-key": join(dir, "pki/key") };
  writeFileSync(path, configOf({ cluster, user: { ...pair, tokenFile: "pki/token", token: "older" } }));
  const read = kubeconfig(path);
  const tls = { ca: "ca 1\n", cert: "crt 1\n", key: "key 1\n", servername: "kubernetes" };
  assert.deepEqual(read(), { server: new URL("https://api.example:6443"), tls, token: "token 1" });
  writeFileSync(join(dir, "pki", "token"), "token 2");
  assert.equal(read().token, "token 2");
  const data = Buffer.from("inline ca").toString("base64");
  writeFileSync(path, configOf({ cluster: { ...cluster, "certificate-authority-data": data } }));
  assert.deepEqual(read().tls, { ca: "inline ca", servername: "kubernetes" });
});

test("what a kubeconfig asks for and we do not do is refused with its reason, and no word of a secret", async (t) => {
  const dir = folderOf(t);
  const path = join(dir, "kubeconfig");
  const cases: [Parts | string, RegExp][] = [
    [{ cluster: { "insecure-skip-tls-verify": true } }, /insecure-skip-tls-verify is not supported: give the CA/],
    [{ cluster: { "proxy-url": "http://proxy" } }, /a proxy-url is not supported/],
    [{ cluster: { server: "http://127.0.0.1:8001" } }, /must be an https URL, not "http:/],
    [{ cluster: { server: "api.example" } }, /must be an https URL/],
    [
      { user: { exec: { command: "aws" } } },
      /a user with "exec" is not supported: give a client certificate or a token/,
    ],
    [{ user: { token: "s3cr3t", as: "admin" } }, /a user with "as" is not supported/],
    [{ user: { username: "u", password: "s3cr3t" } }, /a user with "username" is not supported/],
    [{ user: {} }, /has neither a client certificate nor a token/],
    [{ user: { "client-certificate-data": "YQ==" } }, /come together/],
    [{ user: { tokenFile: "nowhere" } }, /\/nowhere cannot be read: there is no such file/],
    [{ top: { "current-context": "third" } }, /it has no context "third"/],
    [{ top: { "current-context": "" } }, /it names no context to use/],
    [{ top: { users: [] } }, /it has no user "u"/],
    [{ top: { clusters: 7 } }, /clusters /],
    ["token: [s3cr3t", /it is no YAML/],
    ["just a text", /kubeconfig .*: it must be an object/],
  ];
  for (const [parts, sentence] of cases) {
    writeFileSync(path, typeof parts === "string" ? parts : configOf(parts));
    assert.throws(kubeconfig(path), ({ message }: Error) => {
      assert.ok(message.startsWith(`kubeconfig ${path}: `), message);
      assert.match(message, sentence);
      assert.ok(!message.includes("s3cr3t"), message);
      return true;
    });
  }
  assert.throws(kubeconfig(join(dir, "none")), /cannot be read: there is no such file$/);
  using _pipe = pipeAt(join(dir, "pipe"));
  assert.throws(
    kubeconfig(join(dir, "pipe")),
    /cannot be read: it is a pipe, a socket or a device, not a regular file$/,
  );
  hugeFileAt(join(dir, "huge"));
  assert.throws(kubeconfig(join(dir, "huge")), /cannot be read: it is larger than 4 MiB$/);
});

test("a pod finds its API server and its own token, which is read again at each call", async (t) => {
  const dir = folderOf(t);
  writeFileSync(join(dir, "ca.crt"), "ca");
  writeFileSync(join(dir, "token"), "one\n");
  const read = inCluster({ KUBERNETES_SERVICE_HOST: "fd00::1", KUBERNETES_SERVICE_PORT: "6443" }, dir);
  assert.deepEqual(read(), { server: new URL("https://[fd00::1]:6443"), tls: { ca: "ca" }, token: "one" });
  writeFileSync(join(dir, "token"), "two");
  assert.equal(read().token, "two");
  assert.throws(inCluster({}, dir), /in no pod .*: give a kubeconfig/);
});

test("a certificate, key or CA that is damaged is found at the start", async (t) => {
  const path = join(folderOf(t), "kubeconfig");
  const authority = await Authority.create("api");
  const { cert, key } = await authority.issue({ cn: "u", usage: "client" });
  const other = await authority.issue({ cn: "other", usage: "client" });
  const base64 = (text: string) => Buffer.from(text).toString("base64");
  const write = (certificate: string, privateKey: string, ca: string) => {
    const user = { "client-certificate-data": base64(certificate), "client-key-data": base64(privateKey) };
    writeFileSync(path, configOf({ user, cluster: { "certificate-authority-data": base64(ca) } }));
  };
  write(cert, key, authority.cert);
  checkAccess(kubeconfig(path));
  const cases: [string, string, string, RegExp][] = [
    ["damaged", key, authority.cert, /our certificate and key for .* cannot be used \(ERR_/],
    [cert, other.key, authority.cert, /our certificate and key for .* cannot be used \(ERR_/],
    [cert, key, "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", /the CA of .* cannot be used/],
    [cert, key, key, /the CA of .* cannot be used/],
    [cert, key, cert, /the CA of .* cannot be used: there is no certificate of a CA in it \(a leaf is none\)/],
  ];
  for (const [certificate, privateKey, ca, sentence] of cases) {
    write(certificate, privateKey, ca);
    assert.throws(() => checkAccess(kubeconfig(path)), sentence);
  }
});
