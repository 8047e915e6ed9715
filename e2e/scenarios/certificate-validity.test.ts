import assert from "node:assert/strict";
import { mkdtemp, rename, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { fetchText, type Line, pki, start } from "../../server/testing/server.ts";
import { type Tenant, Tenants } from "../../server/testing/tenants.ts";
import { until } from "../../shared/basics/testing/wait.ts";
import type { LeafOptions } from "../../shared/pki/certificates.ts";

type Times = Partial<Pick<LeafOptions, "notBefore" | "notAfter" | "usage">>;

const fromNow = (minutes: number): Date => new Date(Math.floor(Date.now() / 1_000) * 1_000 + minutes * 60_000);

/** Certificate and key of a flag, in a folder of their own. */
async function flagFiles() {
  const folder = await mkdtemp(join(tmpdir(), "culvert-validity-"));
  const [clusterCert, clusterKey] = [join(folder, "cert.pem"), join(folder, "key.pem")];
  return {
    options: { clusterCert, clusterKey },
    renew: async (times: Times) => {
      const { cert, key } = await pki.ca.issue({ cn: "server", names: ["localhost"], usage: "server", ...times });
      for (const [path, content] of [
        [clusterCert, cert],
        [clusterKey, key],
      ] as const) {
        await writeFile(`${path}.new`, content);
        await rename(`${path}.new`, path);
      }
    },
    [Symbol.asyncDispose]: () => rm(folder, { recursive: true }),
  };
}

test("a server whose certificate is not yet valid is not ready, at the start and after a reload", async () => {
  await using files = await flagFiles();
  const notBefore = fromNow(60);
  await files.renew({ notBefore });
  await using server = await start(files.options);
  const shown = () => fetchText(server.addresses.admin?.port, "/readyz?verbose");
  const { status, text } = await shown();
  assert.equal(status, 503);
  assert.ok(text.includes(`agents: not valid before ${notBefore.toISOString()}`), text);

  await files.renew({});
  await until(async () => (await shown()).status === 200);
  await files.renew({ notBefore: fromNow(120) });
  await until(async () => (await shown()).status === 503);
});

/** A certificate for one side of a tenant: what its document has to say of it. */
async function issue({ folder }: Tenants, { name, sni, authority }: Tenant, times: Times): Promise<object> {
  const { cert, key } = await authority.issue({ cn: name, names: [sni], usage: "server", ...times });
  await writeFile(join(folder, `${name}-side.crt`), cert);
  await writeFile(join(folder, `${name}-side.key`), key);
  return { cert: `${name}-side.crt`, key: `${name}-side.key` };
}

test("a cluster whose certificate clients refuse for its dates is named with the side, and the server stays ready for the others", async () => {
  await using tenants = await Tenants.create(["blue", "red"]);
  const [blue, red] = [tenants.get("blue"), tenants.get("red")];
  const [notAfter, notBefore] = [fromNow(-60), fromNow(60)];
  await blue.write({ agents: await issue(tenants, blue, { notBefore: fromNow(-120), notAfter }) });
  const server = await tenants.start();
  const get = (port: number | undefined, path: string) => fetchText(port, path);
  const shown = () => get(server.addresses.admin?.port, "/readyz?verbose");

  const { status, text } = await shown();
  assert.equal(status, 200);
  const expired = `blue.yaml: cluster "blue": agents.cert expired on ${notAfter.toISOString()}: agents refuse this server`;
  assert.ok(text.includes(expired), text);
  assert.doesNotMatch(text, /callers\.cert|cluster "red"/);
  const { problems } = JSON.parse((await get(server.addresses.admin?.port, "/status")).text);
  assert.deepEqual(problems, [join(tenants.folder, expired)]);
  assert.match((await get(server.addresses.admin?.port, "/metrics")).text, /^culvert_server_cluster_faults 1$/m);

  await red.write({ callers: await issue(tenants, red, { notBefore }) });
  const early = `cluster "red": callers.cert not valid before ${notBefore.toISOString()}: callers refuse this server`;
  await until(async () => (await shown()).text.includes(early));
  for (const tenant of [blue, red]) await issue(tenants, tenant, {});
  await until(async () => !/refuse this server/.test((await shown()).text));
});

/** What the log says of certificates whose time is not now. */
function refused(lines: readonly Line[]) {
  const told = lines.filter(({ msg }) => /refuse this server$/.test(msg));
  return told.map(({ level, msg, cluster, notBefore, notAfter }) => ({ level, msg, cluster, notBefore, notAfter }));
}

test("the log names the flag of a certificate that has expired or is not yet valid, at the start and after a reload", async () => {
  await using files = await flagFiles();
  const { clusterCert: serverCert, clusterKey: serverKey } = files.options;
  const old = { notBefore: fromNow(-120), notAfter: fromNow(-60) };
  await files.renew(old);
  await using server = await start({ ...files.options, serverCert, serverKey });
  const line = (msg: string, { notBefore, notAfter }: { readonly notBefore: Date; readonly notAfter: Date }) => ({
    ...{ level: "error", msg, cluster: undefined },
    ...{ notBefore: notBefore.toISOString(), notAfter: notAfter.toISOString() },
  });
  assert.deepEqual(refused(server.lines), [
    line("the certificate of --cluster-cert has expired: agents refuse this server", old),
    line("the certificate of --server-cert has expired: callers refuse this server", old),
  ]);
  const early = { notBefore: fromNow(60), notAfter: fromNow(120) };
  await files.renew(early);
  await until(() => refused(server.lines).length === 4);
  assert.deepEqual(
    refused(server.lines)
      .slice(2)
      .sort((one, other) => one.msg.localeCompare(other.msg)),
    [
      line("the certificate of --cluster-cert is not yet valid: agents refuse this server", early),
      line("the certificate of --server-cert is not yet valid: callers refuse this server", early),
    ],
  );
});

test("the log names cluster and side of such a certificate, at the start, and when its files or documents change", async () => {
  await using tenants = await Tenants.create(["blue", "red"]);
  const [blue, red] = [tenants.get("blue"), tenants.get("red")];
  const old = { notBefore: fromNow(-120), notAfter: fromNow(-60) };
  await blue.write({ agents: await issue(tenants, blue, old) });
  const server = await tenants.start();
  const told = () => refused(server.lines).map(({ level, msg, cluster }) => [level, cluster, msg]);
  const expired = "the certificate of agents.cert has expired: agents refuse this server";
  assert.deepEqual(told(), [["error", "blue", expired]]);
  await issue(tenants, blue, { notBefore: fromNow(60) });
  await until(() => told().length === 2);
  const early = "the certificate of agents.cert is not yet valid: agents refuse this server";
  assert.deepEqual(told()[1], ["error", "blue", early]);
  await red.write({ callers: await issue(tenants, red, old) });
  await until(() => told().length === 3);
  assert.deepEqual(told()[2], ["error", "red", expired.replaceAll("agents", "callers")]);
});

const WITHOUT = "has no serverAuth in its extended key usage";

test("a server whose certificate has no serverAuth says so in log and readyz, at the start and after a reload", async () => {
  await using files = await flagFiles();
  await files.renew({ usage: "client" });
  await using server = await start(files.options);
  const told = () => refused(server.lines).map(({ level, msg }) => [level, msg]);
  const line = ["error", `the certificate of --cluster-cert ${WITHOUT}: agents refuse this server`];
  assert.deepEqual(told(), [line]);
  const shown = () => fetchText(server.addresses.admin?.port, "/readyz?verbose");
  const { status, text } = await shown();
  assert.equal(status, 503);
  assert.ok(text.includes(`agents: ${WITHOUT}`), text);

  await files.renew({ usage: "both" });
  await until(async () => (await shown()).status === 200);
  assert.equal(told().length, 1);
  await files.renew({ usage: "client" });
  await until(() => told().length === 2);
  assert.deepEqual(told()[1], line);
});

test("a cluster whose certificate has no serverAuth is named with the side, and the server stays ready for the others", async () => {
  await using tenants = await Tenants.create(["blue", "red"]);
  const blue = tenants.get("blue");
  await blue.write({ agents: await issue(tenants, blue, { usage: "client" }) });
  const server = await tenants.start();
  const { status, text } = await fetchText(server.addresses.admin?.port, "/readyz?verbose");
  assert.equal(status, 200);
  assert.ok(text.includes(`blue.yaml: cluster "blue": agents.cert ${WITHOUT}: agents refuse this server`), text);
  assert.deepEqual(
    refused(server.lines).map(({ cluster, msg }) => [cluster, msg]),
    [["blue", `the certificate of agents.cert ${WITHOUT}: agents refuse this server`]],
  );
});
