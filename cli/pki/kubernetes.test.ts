import assert from "node:assert/strict";
import { X509Certificate } from "node:crypto";
import { createServer } from "node:https";
import { type TestContext, test } from "node:test";
import { listening } from "../../shared/basics/testing/wait.ts";
import { ConfigError } from "../../shared/config/options.ts";
import { HttpsClient } from "../../shared/http/https-client.ts";
import { KubeFailure } from "../../shared/kubernetes/kube-collection.ts";
import { Authority } from "../../shared/pki/certificates.ts";
import { ensureSecrets, KubeSecrets, type PkiKubernetesOptions, runPkiKubernetes } from "./kubernetes.ts";
import { KubeSecretsStub } from "./testing/secrets.ts";

const ALL = ["x-ca", "x-server", "x-caller", "x-agent"];
const OPTIONS = { namespace: "ns", name: "x", serverNames: ["x.ns.svc", "10.1.2.3", "fd00::1"], days: 90 };
const DAY_MS = 86_400_000;

/** An API server, and the command for it; it returns the lines that were printed. */
async function installation(t: TestContext) {
  const api = await KubeSecretsStub.start(t);
  const run = async (
    change: Partial<PkiKubernetesOptions> = {},
    now = new Date(),
    lines: string[] = [],
  ): Promise<string[]> => {
    await ensureSecrets({ ...OPTIONS, ...change }, api.access, (line) => lines.push(line), now);
    return lines;
  };
  const certificate = (name: string) => new X509Certificate(api.text(name, "tls.crt"));
  return { api, run, certificate };
}

const inDays = (days: number): Date => new Date(Date.now() + days * DAY_MS);

test("four Secrets are created, each with certificate, key and CA, and a line is printed for each", async (t) => {
  const { api, run, certificate } = await installation(t);
  const lines = await run();
  assert.deepEqual(
    api.writes,
    ALL.map((name) => `POST ${name}`),
  );
  assert.deepEqual(
    lines.map((line) => line.replace(/\d{4}-\d\d-\d\d$/, "DATE")),
    ALL.map((name) => `secret ns/${name}: created, valid until DATE`),
  );
  for (const name of ALL) {
    const { type, metadata } = api.secrets.get(name) ?? assert.fail(name);
    assert.equal(type, "kubernetes.io/tls");
    assert.deepEqual(metadata.labels, { "app.kubernetes.io/managed-by": "culvert" });
    assert.deepEqual(metadata.annotations, { "helm.sh/resource-policy": "keep" });
    assert.equal(certificate(name).verify(certificate("x-ca").publicKey), true);
    assert.equal(api.text(name, "ca.crt"), api.text("x-ca", "tls.crt"));
    assert.match(api.text(name, "tls.key"), /^-----BEGIN PRIVATE KEY-----/);
  }
  assert.equal(
    certificate("x-server").subjectAltName,
    "DNS:x.ns.svc, IP Address:10.1.2.3, IP Address:FD00:0:0:0:0:0:0:1",
  );
  assert.deepEqual(
    [certificate("x-caller").subject, certificate("x-agent").subject],
    ["CN=culvert-client", "CN=culvert-agent"],
  );
  const days = (Date.parse(certificate("x-server").validTo) - Date.now()) / DAY_MS;
  assert.ok(days > 89.9 && days <= 90, `${days}`);
});

test("a second run writes nothing, in whatever order and form the names are given", async (t) => {
  const { api, run } = await installation(t);
  await run();
  api.writes.length = 0;
  const lines = await run({ serverNames: ["FD00:0::1", "X.ns.svc", "10.1.2.3", "x.ns.svc"] });
  assert.deepEqual(api.writes, []);
  assert.ok(
    lines.every((line) => line.includes(": kept, valid until ")),
    lines.join("\n"),
  );
});

test("the servers of a fleet get a Secret of their own, with the role that they ask each other for", async (t) => {
  const { api, run, certificate } = await installation(t);
  await run();
  api.writes.length = 0;
  await run({ peers: true });
  assert.deepEqual(api.writes, ["POST x-peer"]);
  const { subject, keyUsage } = certificate("x-peer");
  assert.equal(subject, "O=culvert-servers\nCN=culvert-peer");
  assert.deepEqual(keyUsage, ["1.3.6.1.5.5.7.3.1", "1.3.6.1.5.5.7.3.2"]);
  assert.equal(certificate("x-peer").verify(certificate("x-ca").publicKey), true);
});

test("a certificate with less than a third of its life left is renewed by the same CA, and no sooner", async (t) => {
  const { api, run, certificate } = await installation(t);
  await run();
  const authority = api.text("x-ca", "tls.crt");
  api.writes.length = 0;
  await run({}, inDays(59));
  assert.deepEqual(api.writes, []);
  const lines = await run({}, inDays(61));
  assert.deepEqual(api.writes, ["PUT x-server", "PUT x-caller", "PUT x-agent"]);
  assert.match(lines[1] ?? "", /^secret ns\/x-server: renewed, valid until .*, because less than a third of its life/);
  assert.equal(api.text("x-ca", "tls.crt"), authority);
  assert.equal(certificate("x-server").verify(certificate("x-ca").publicKey), true);
  assert.ok(Date.parse(certificate("x-agent").validTo) > inDays(150).getTime());
});

test("other server names renew the serving certificate alone, and what else is in the Secret stays", async (t) => {
  const { api, run, certificate } = await installation(t);
  await run();
  const server = api.secrets.get("x-server") ?? assert.fail();
  const labels = { ...server.metadata.labels, team: "blue" };
  api.put({ ...server, metadata: { ...server.metadata, labels }, data: { ...server.data, extra: "ZQ==" } });
  api.writes.length = 0;
  const lines = await run({ serverNames: ["y.ns.svc"] });
  assert.deepEqual(api.writes, ["PUT x-server"]);
  assert.match(lines[1] ?? "", /because the names have changed$/);
  assert.equal(certificate("x-server").subjectAltName, "DNS:y.ns.svc");
  const { metadata, data } = api.secrets.get("x-server") ?? assert.fail();
  assert.deepEqual([metadata.labels?.["team"], data["extra"]], ["blue", "ZQ=="]);
});

test("certificates of a CA that was deleted are renewed by the new one, and so is what cannot be read", async (t) => {
  const { api, run, certificate } = await installation(t);
  await run();
  api.secrets.delete("x-ca");
  const lines = await run();
  assert.match(lines[3] ?? "", /x-agent: renewed, .*because another CA has signed it$/);
  for (const name of ALL) assert.equal(certificate(name).verify(certificate("x-ca").publicKey), true, name);
  const caller = api.secrets.get("x-caller") ?? assert.fail();
  api.put({ ...caller, data: { ...caller.data, "tls.key": "" } });
  assert.match((await run())[2] ?? "", /because its certificate or key cannot be read$/);
  api.put({ ...caller, data: { ...caller.data, "tls.key": api.secrets.get("x-agent")?.data["tls.key"] ?? "" } });
  assert.match((await run())[2] ?? "", /because its key belongs to another certificate$/);
});

test("a Secret that somebody else made is never overwritten, its CA is used, and a leaf that needs renewal is a failure", async (t) => {
  const { api, run, certificate } = await installation(t);
  const own = await Authority.create("own CA", 30);
  const base64 = (text: string) => Buffer.from(text).toString("base64");
  api.put({ metadata: { name: "x-ca" }, data: { "tls.crt": base64(own.cert), "tls.key": base64(own.key) } });
  api.put({ metadata: { name: "x-server" }, data: { "tls.crt": "cHJlY2lvdXM=" } });
  const lines: string[] = [];
  await assert.rejects(run({}, new Date(), lines), (error) => {
    assert.ok(error instanceof KubeFailure);
    assert.match(
      error.message,
      /kubectl -n ns label secret x-server app\.kubernetes\.io\/managed-by=culvert --overwrite/,
    );
    return true;
  });
  assert.deepEqual(api.writes, ["POST x-caller", "POST x-agent"], "the others are made all the same");
  assert.equal(api.text("x-server", "tls.crt"), "precious");
  assert.match(lines[1] ?? "", /x-server: kept, although its certificate .* has no label .*managed-by=culvert$/);
  assert.equal(certificate("x-agent").issuer, "CN=own CA");
  assert.equal(certificate("x-agent").validTo, certificate("x-ca").validTo, "no longer than its CA");
  const server = api.secrets.get("x-server") ?? assert.fail();
  api.put({ ...server, metadata: { name: "x-server", labels: { "app.kubernetes.io/managed-by": "culvert" } } });
  assert.match((await run())[1] ?? "", /x-server: renewed/);
});

test("two runs at once end with one CA and certificates of it, and neither fails", async (t) => {
  const { api, run, certificate } = await installation(t);
  await Promise.all([run(), run(), run()]);
  assert.deepEqual(api.writes.toSorted(), ALL.map((name) => `POST ${name}`).toSorted());
  for (const name of ALL) assert.equal(certificate(name).verify(certificate("x-ca").publicKey), true, name);
  api.writes.length = 0;
  await Promise.all([run({}, inDays(61)), run({}, inDays(61))]);
  assert.equal(api.writes.length, 3);
});

test("a Secret that changes or vanishes between reading and writing is read again", async (t) => {
  const { api, run, certificate } = await installation(t);
  await run();
  api.beforeWrite = (_method, name) => {
    api.beforeWrite = () => {};
    api.secrets.delete(name);
  };
  await run({ serverNames: ["y"] });
  assert.equal(api.writes.at(-1), "POST x-server");
  assert.equal(certificate("x-server").subjectAltName, "DNS:y");
  api.beforeWrite = (_method, name) => api.put(api.secrets.get(name) ?? assert.fail(name));
  const busy = run({ serverNames: ["z"] });
  await assert.rejects(busy, /the secret x-server was changed 5 times by others in the meantime: run this again/);
});

test("a missing right, a missing namespace and a damaged CA are sentences that say what to do", async (t) => {
  const { api, run } = await installation(t);
  const fails = (message: RegExp, change: Partial<PkiKubernetesOptions> = {}) =>
    assert.rejects(run(change), (error) => {
      assert.ok(error instanceof KubeFailure);
      assert.match(error.message, message);
      return true;
    });
  for (const verb of ["get", "create"]) {
    api.forbidden.clear();
    api.forbidden.add(verb);
    const grant = `let us ${verb} the secret x-ca: grant the verb "${verb}" on "secrets" in namespace "ns" by a Role`;
    await fails(new RegExp(`${grant}. It says: .*system:serviceaccount:ns:pki`));
  }
  api.forbidden.clear();
  await fails(/there is no namespace "nowhere": create it first/, { namespace: "nowhere" });
  await run();
  api.forbidden.add("update");
  await fails(/does not let us update the secret x-server/, { serverNames: ["y"] });
  api.put({ metadata: { name: "x-ca" }, data: {} });
  await fails(/the secret x-ca needs a CA with an ECDSA P-256 key .*: restore it, or delete it for a new CA/);
  const old = await Authority.create("old", -1);
  const base64 = (text: string) => Buffer.from(text).toString("base64");
  api.put({ metadata: { name: "x-ca" }, data: { "tls.crt": base64(old.cert), "tls.key": base64(old.key) } });
  await fails(/the CA in the secret x-ca expired on \d{4}-\d\d-\d\d: delete that secret and run this again/);
  api.stub.answer = () => ({ status: 500, body: "oh" });
  await fails(/the API server localhost:\d+ answers 500 to get of the secret x-ca$/);
  api.stub.answer = () => ({ status: 401, body: "" });
  await fails(/does not accept our credentials \(401\)/);
  api.stub.answer = () => ({ status: 200, body: "[]" });
  await fails(/answers with something else than a Secret for x-ca/);
  api.stub.stop();
  await fails(/the API server localhost:\d+ cannot be reached: .*ECONNREFUSED/);
});

test("a CA with less than a third of its life left is kept, and its line says so", async (t) => {
  const { run } = await installation(t);
  await run();
  const [line] = await run({}, inDays(3_650 * 0.7));
  assert.match(line ?? "", /x-ca: kept, valid until .*, but less than a third of its life is left: plan a new CA/);
});

test("an API server that does not answer in time is a sentence", async (t) => {
  const { api } = await installation(t);
  api.stub.answer = () => new Promise(() => {});
  const secrets = new KubeSecrets(api.access, "ns", AbortSignal.timeout(50));
  t.after(() => secrets.close());
  await assert.rejects(secrets.read("x"), /localhost:\d+ cannot be reached: it took too long to answer/);
});

test("no private key is in any line", async (t) => {
  const { api, run } = await installation(t);
  const lines = await run();
  const keys = ALL.map((name) => api.text(name, "tls.key").split("\n")[1] ?? assert.fail());
  for (const key of keys) assert.ok(!lines.join("\n").includes(key));
});

test("options that Kubernetes or a certificate would refuse are refused before anything is asked", async () => {
  const cases: [change: Partial<PkiKubernetesOptions>, message: RegExp][] = [
    [{ namespace: "a/b" }, /--namespace needs the name of a namespace, not "a\/b"/],
    [{ name: "Release" }, /--name needs a name that a Secret can begin with, not "Release"/],
    [{ name: "x".repeat(241) }, /--name needs/],
    [{ serverNames: [] }, /--server-names needs at least one name/],
    [{ serverNames: ["https://x"] }, /neither a host name nor an IP address/],
  ];
  for (const [change, message] of cases) {
    await assert.rejects(runPkiKubernetes({ ...OPTIONS, ...change }, assert.fail), (error) => {
      assert.ok(error instanceof ConfigError);
      assert.match(error.message, message);
      return true;
    });
  }
});

test("the serving certificate and those of callers and agents make handshakes with each other", async (t) => {
  const { api, run } = await installation(t);
  await run({ serverNames: ["localhost"] });
  const own = (name: string) => ({
    cert: api.text(name, "tls.crt"),
    key: api.text(name, "tls.key"),
    ca: api.text(name, "ca.crt"),
  });
  const server = createServer({ ...own("x-server"), requestCert: true, rejectUnauthorized: true }, (_request, answer) =>
    answer.end("fine"),
  );
  const port = await listening(t, server);
  const client = new HttpsClient();
  t.after(() => client.close());
  for (const name of ["x-caller", "x-agent"]) {
    const url = new URL(`https://localhost:${port}`);
    const signal = AbortSignal.timeout(5_000);
    assert.equal((await client.send({ url, method: "GET", headers: {}, tls: own(name), signal })).text, "fine");
  }
});
