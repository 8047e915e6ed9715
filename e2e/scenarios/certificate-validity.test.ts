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

/** Log lines about certificates that clients refuse. */
function refused(lines: readonly Line[]) {
  const told = lines.filter(({ msg }) => /refuse this server$/.test(msg));
  return told.map(({ level, msg, cluster, notBefore, notAfter }) => ({ level, msg, cluster, notBefore, notAfter }));
}

const ENDED = { notBefore: fromNow(-120), notAfter: fromNow(-60) };
const EARLY = { notBefore: fromNow(60), notAfter: fromNow(120) };
const EXPIRED = `expired on ${ENDED.notAfter.toISOString()}`;
const NOT_YET = `not valid before ${EARLY.notBefore.toISOString()}`;
const WITHOUT = "has no serverAuth in its extended key usage";

/** Why clients refuse a certificate, as /readyz says it of the port and the log of the flag. */
const FAULTS: readonly (readonly [times: Times, readyz: string, log: string])[] = [
  [ENDED, EXPIRED, "has expired"],
  [EARLY, NOT_YET, "is not yet valid"],
  [{ usage: "client", notBefore: fromNow(-60), notAfter: fromNow(60) }, WITHOUT, WITHOUT],
];
for (const [times, readyz, log] of FAULTS) {
  test(`a server whose certificate ${log} is not ready, and its log names the flag, at the start and after a reload`, async () => {
    await using files = await flagFiles();
    const { clusterCert: serverCert, clusterKey: serverKey } = files.options;
    await files.renew(times);
    await using server = await start({ ...files.options, serverCert, serverKey });
    const shown = () => fetchText(server.addresses.admin?.port, "/readyz?verbose");
    const { status, text } = await shown();
    assert.equal(status, 503);
    assert.ok(text.includes(`agents: ${readyz}`), text);
    const [notBefore, notAfter] = [times.notBefore?.toISOString(), times.notAfter?.toISOString()];
    const line = (flag: string, who: string) => ({
      ...{ level: "error", msg: `the certificate of ${flag} ${log}: ${who} refuse this server`, cluster: undefined },
      ...{ notBefore, notAfter },
    });
    const both = [line("--cluster-cert", "agents"), line("--server-cert", "callers")];
    assert.deepEqual(refused(server.lines), both);

    await files.renew({});
    await until(async () => (await shown()).status === 200);
    assert.equal(refused(server.lines).length, 2);
    await files.renew(times);
    await until(async () => (await shown()).status === 503 && refused(server.lines).length === 4);
    const again = refused(server.lines).slice(2);
    assert.deepEqual(
      again.sort((one, other) => one.msg.localeCompare(other.msg)),
      both,
    );
  });
}

/** A certificate for one side of a tenant: what its document has to say of it. */
async function issue({ folder }: Tenants, { name, sni, authority }: Tenant, times: Times): Promise<object> {
  const { cert, key } = await authority.issue({ cn: name, names: [sni], usage: "server", ...times });
  await writeFile(join(folder, `${name}-side.crt`), cert);
  await writeFile(join(folder, `${name}-side.key`), key);
  return { cert: `${name}-side.crt`, key: `${name}-side.key` };
}

test("a cluster whose certificate clients refuse is named with the side, and the server stays ready for the others", async () => {
  await using tenants = await Tenants.create(["blue", "red"]);
  const [blue, red] = [tenants.get("blue"), tenants.get("red")];
  await blue.write({ agents: await issue(tenants, blue, ENDED) });
  const server = await tenants.start();
  const { admin } = server.addresses;
  const shown = async () => (await fetchText(admin?.port, "/readyz?verbose")).text;
  const told = () => refused(server.lines).map(({ level, cluster, msg }) => [level, cluster, msg]);

  const { status, text } = await fetchText(admin?.port, "/readyz?verbose");
  assert.equal(status, 200);
  const expired = `blue.yaml: cluster "blue": agents.cert ${EXPIRED}: agents refuse this server`;
  assert.ok(text.includes(expired), text);
  assert.doesNotMatch(text, /callers\.cert|cluster "red"/);
  const { problems } = JSON.parse((await fetchText(admin?.port, "/status")).text);
  assert.deepEqual(problems, [join(tenants.folder, expired)]);
  assert.match((await fetchText(admin?.port, "/metrics")).text, /^culvert_server_cluster_faults 1$/m);
  const ended = ["error", "blue", "the certificate of agents.cert has expired: agents refuse this server"];
  assert.deepEqual(told(), [ended]);

  // Files change, and then a document.
  await issue(tenants, blue, EARLY);
  await until(async () =>
    (await shown()).includes(`cluster "blue": agents.cert ${NOT_YET}: agents refuse this server`),
  );
  const early = ["error", "blue", "the certificate of agents.cert is not yet valid: agents refuse this server"];
  await until(() => told().length === 2);
  await red.write({ callers: await issue(tenants, red, { usage: "client" }) });
  await until(async () =>
    (await shown()).includes(`cluster "red": callers.cert ${WITHOUT}: callers refuse this server`),
  );
  const without = ["error", "red", `the certificate of callers.cert ${WITHOUT}: callers refuse this server`];
  await until(() => told().length === 3);
  assert.deepEqual(told(), [ended, early, without]);

  for (const tenant of [blue, red]) await issue(tenants, tenant, {});
  await until(async () => !/refuse this server/.test(await shown()));
});
