import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { X509Certificate } from "node:crypto";
import { once } from "node:events";
import { chmod, mkdir, mkdtemp, readdir, readFile, rm, stat, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { test } from "node:test";
import tls from "node:tls";
import { listening } from "../../shared/basics/testing/wait.ts";
import { ConfigError } from "../../shared/config/options.ts";
import { matches, parsePattern, readNames } from "../../shared/tls/identity.ts";
import { createPki, makeFolder, ownCommand, type PkiFile, runPki } from "./pki.ts";

class Folder implements AsyncDisposable {
  readonly path: string;
  constructor(path: string) {
    this.path = path;
  }
  read(name: PkiFile): Promise<string> {
    return readFile(join(this.path, name), "utf8");
  }
  async [Symbol.asyncDispose](): Promise<void> {
    await rm(this.path, { recursive: true, force: true });
  }
}

async function folder(): Promise<Folder> {
  return new Folder(await mkdtemp(join(tmpdir(), "culvert-pki-")));
}

const ALL = [
  "agent.crt",
  "agent.key",
  "client.crt",
  "client.key",
  "cluster-ca.crt",
  "cluster.crt",
  "cluster.key",
  "peer-ca.crt",
  "peer.crt",
  "peer.key",
  "server-ca.crt",
  "server.crt",
  "server.key",
];

test("a set is complete, keys are private, and nothing else is left", async () => {
  await using dir = await folder();
  await createPki({ dir: join(dir.path, "new", "set") });
  const set = join(dir.path, "new", "set");
  assert.deepEqual((await readdir(set)).sort(), ALL);
  for (const name of ALL) {
    const { mode, nlink } = await stat(join(set, name));
    if (name.endsWith(".key")) assert.equal((mode & 0o777).toString(8), "600", name);
    assert.equal(nlink, 1);
  }
});

test("names, usages, lifetimes and issuers are as they should be", async () => {
  await using dir = await folder();
  await createPki({ dir: dir.path, serverNames: ["proxy.example", "10.1.2.3", "fd00::1"], days: 7 });
  const read = async (name: PkiFile) => new X509Certificate(await dir.read(name));
  const server = await read("server.crt");
  assert.equal(server.subjectAltName, "DNS:proxy.example, IP Address:10.1.2.3, IP Address:FD00:0:0:0:0:0:0:1");
  assert.deepEqual([server.keyUsage, server.ca], [["1.3.6.1.5.5.7.3.1"], false]);
  assert.equal(
    (await read("cluster.crt")).subjectAltName,
    "DNS:localhost, IP Address:127.0.0.1, IP Address:0:0:0:0:0:0:0:1",
  );
  const client = await read("client.crt");
  assert.deepEqual([client.subject, client.keyUsage], ["CN=culvert-client", ["1.3.6.1.5.5.7.3.2"]]);
  assert.equal((await read("agent.crt")).subject, "CN=culvert-agent");
  const peer = await read("peer.crt");
  assert.deepEqual(
    [peer.subject, peer.keyUsage],
    ["O=culvert-servers\nCN=culvert-peer", ["1.3.6.1.5.5.7.3.1", "1.3.6.1.5.5.7.3.2"]],
  );
  assert.equal(matches(parsePattern("O=culvert-servers"), readNames(peer.toLegacyObject())), true);
  for (const [ca, leaves] of [
    ["server-ca.crt", ["server.crt", "client.crt"]],
    ["cluster-ca.crt", ["cluster.crt", "agent.crt"]],
    ["peer-ca.crt", ["peer.crt"]],
  ] as const) {
    const authority = await read(ca);
    assert.equal(authority.ca, true);
    for (const leaf of leaves) assert.equal((await read(leaf)).verify(authority.publicKey), true, leaf);
  }
  const days = (Date.parse(server.validTo) - Date.now()) / 86_400_000;
  assert.ok(days > 6.9 && days <= 7, `${days}`);
  assert.ok(Date.parse(server.validFrom) < Date.now() - 60_000, "valid on a machine whose clock is a little behind");
});

test("OpenSSL verifies each certificate strictly, for its purpose, and only by its own CA", async (context) => {
  if (spawnSync("openssl", ["version"]).status !== 0) return context.skip("openssl is not installed");
  await using dir = await folder();
  await createPki({ dir: dir.path });
  const verify = (ca: PkiFile, purpose: string, leaf: PkiFile): boolean => {
    const args = ["verify", "-x509_strict", "-purpose", purpose, "-CAfile", join(dir.path, ca), join(dir.path, leaf)];
    return spawnSync("openssl", args).status === 0;
  };
  assert.equal(verify("server-ca.crt", "sslserver", "server.crt"), true);
  assert.equal(verify("server-ca.crt", "sslclient", "client.crt"), true);
  assert.equal(verify("cluster-ca.crt", "sslserver", "cluster.crt"), true);
  assert.equal(verify("cluster-ca.crt", "sslclient", "agent.crt"), true);
  assert.equal(verify("peer-ca.crt", "sslserver", "peer.crt"), true);
  assert.equal(verify("peer-ca.crt", "sslclient", "peer.crt"), true);
  assert.equal(verify("cluster-ca.crt", "sslclient", "peer.crt"), false);
  assert.equal(verify("server-ca.crt", "sslclient", "server.crt"), false);
  assert.equal(verify("server-ca.crt", "sslserver", "client.crt"), false);
  assert.equal(verify("server-ca.crt", "sslclient", "agent.crt"), false);
});

for (const [side, ca, own, peer] of [
  ["a caller", "server-ca.crt", "server", "client"],
  ["an agent", "cluster-ca.crt", "cluster", "agent"],
] as const) {
  test(`${side} and the server shake hands with them, by name and by address`, async (t) => {
    await using dir = await folder();
    await createPki({ dir: dir.path });
    const files = await Promise.all([dir.read(ca), dir.read(`${own}.crt`), dir.read(`${own}.key`)]);
    const [authority, cert, key] = files;
    const server = tls.createServer({ ca: authority, cert, key, requestCert: true, rejectUnauthorized: true });
    const port = await listening(t, server);
    const mine = { cert: await dir.read(`${peer}.crt`), key: await dir.read(`${peer}.key`), ca: authority };
    for (const name of ["localhost", "127.0.0.1"]) {
      const accepted = once(server, "secureConnection");
      const socket = tls.connect({ port, host: "127.0.0.1", servername: name === "localhost" ? name : "", ...mine });
      await once(socket, "secureConnect");
      const [inner] = (await accepted) as [tls.TLSSocket];
      assert.equal(inner.authorized, true);
      socket.destroy();
      inner.destroy();
    }
  });
}

test("nothing is overwritten, not even one file, and the error names what is there", async () => {
  await using dir = await folder();
  await writeFile(join(dir.path, "agent.key"), "precious");
  await assert.rejects(createPki({ dir: dir.path }), (error) => {
    assert.ok(error instanceof ConfigError);
    assert.match(error.message, /already has agent\.key, and nothing was written\. Name another folder/);
    return true;
  });
  assert.deepEqual(await readdir(dir.path), ["agent.key"]);
  assert.equal(await readFile(join(dir.path, "agent.key"), "utf8"), "precious");
});

test("a second run keeps the whole set as it is, and says that one may go on with it", async () => {
  await using dir = await folder();
  await runPki({ dir: dir.path }, () => {});
  const contents = async () => Promise.all((await readdir(dir.path)).map((name) => dir.read(name as PkiFile)));
  const before = await contents();
  await assert.rejects(runPki({ dir: dir.path }, assert.fail), {
    name: "ConfigError",
    message: /already has a whole set, and nothing was written\. Use that set, or name another/,
  });
  assert.deepEqual(await contents(), before);
});

test("a file that stat does not see is not overwritten either, and what was placed is taken back", async () => {
  await using dir = await folder();
  await symlink("/nonexistent/culvert", join(dir.path, "cluster.key"));
  await assert.rejects(createPki({ dir: dir.path }), /already has/);
  assert.deepEqual(await readdir(dir.path), ["cluster.key"]);
});

test("a folder that cannot be made and a bad name are errors with a sentence", async () => {
  await using dir = await folder();
  await writeFile(join(dir.path, "file"), "");
  await assert.rejects(createPki({ dir: join(dir.path, "file") }), /nothing can be written into/);
  for (const name of ["", "a b", "https://x", "x:1", "-a", "*"]) {
    await assert.rejects(createPki({ dir: dir.path, clusterNames: [name] }), /neither a host name nor an IP address/);
  }
  assert.deepEqual(await readdir(dir.path), ["file"]);
});

test("the command says what each file is and prints lines that name them all", async () => {
  await using dir = await folder();
  const lines: string[] = [];
  const print = (line: string) => lines.push(line);
  await runPki({ dir: join(dir.path, "it's"), serverSan: ["*.example", "proxy.example"], days: 3 }, print, "culvert");
  const text = lines.join("\n");
  for (const name of ALL) assert.match(text, new RegExp(`^  ${name} +\\S`, "m"));
  assert.match(text, /for 3 days/);
  assert.match(text, /--server-cert '\/.*\/it'\\''s\/server\.crt' --server-key/);
  assert.match(text, /^ {2}culvert agent --proxy-server-host 127\.0\.0\.1 --proxy-server-port 8091/m);
  assert.match(text, /-x https:\/\/proxy\.example:8090/);
  const server = new X509Certificate(await readFile(join(dir.path, "it's", "server.crt"), "utf8"));
  assert.equal(server.checkHost("proxy.example"), "proxy.example");
  assert.equal(server.checkIP("127.0.0.1"), "127.0.0.1");
});

test("authorities in memory issue more certificates of the same trust", async () => {
  await using dir = await folder();
  const { clusterAuthority, files } = await createPki({ dir: dir.path });
  const other = await clusterAuthority.issue({ cn: "another-agent", o: ["blue"], usage: "client" });
  const authority = new X509Certificate(await readFile(files["cluster-ca.crt"], "utf8"));
  assert.equal(new X509Certificate(other.cert).verify(authority.publicKey), true);
});

test("the program calls itself as it was called", () => {
  assert.equal(ownCommand("/usr/local/bin/culvert"), "culvert");
  assert.equal(ownCommand("/home/me/culvert/dist/cli/main.js"), "node /home/me/culvert/dist/cli/main.js");
  assert.equal(ownCommand("/my clone/dist/cli/main.js"), "node '/my clone/dist/cli/main.js'");
});

test("a folder is made with its parents, for this user only, and one that exists stays as it is", async () => {
  await using temporary = await folder();
  const dir = temporary.path;
  const path = await makeFolder(join(dir, "a", "b", ""));
  assert.equal(path, resolve(dir, "a", "b"));
  assert.equal(((await stat(path)).mode & 0o777).toString(8), "700");
  await chmod(path, 0o755);
  await writeFile(join(path, "kept"), "");
  await Promise.all([makeFolder(path), makeFolder(path)]);
  assert.equal(((await stat(path)).mode & 0o777).toString(8), "755");
  assert.deepEqual(await readdir(path), ["kept"]);
});

test("two at once make one folder", async () => {
  await using temporary = await folder();
  const path = join(temporary.path, "a", "b", "c");
  assert.deepEqual(await Promise.all([makeFolder(path), makeFolder(path)]), [path, path]);
});

test("a folder that cannot be made is a sentence, not an errno", async () => {
  await using temporary = await folder();
  const dir = temporary.path;
  await writeFile(join(dir, "file"), "");
  await mkdir(join(dir, "x"));
  const cases: [string, RegExp][] = [
    ["", /^--dir needs the name of a folder$/],
    [join(dir, "file"), /^nothing can be written into .*\/file: a file is in the way$/],
    [join(dir, "file", "b"), /^nothing can be written into .*\/file\/b: a file is in the way$/],
    [join(dir, "x".repeat(300)), /: the path is too long$/],
    // Where `mkdir` with `recursive` never comes back.
    ["/proc/culvert", /^nothing can be written into \/proc\/culvert: there is no such folder, and it cannot be made$/],
  ];
  for (const [path, pattern] of cases) {
    await assert.rejects(makeFolder(path), (error) => {
      assert.ok(error instanceof ConfigError);
      assert.match(error.message, pattern);
      return true;
    });
  }
});
