import assert from "node:assert/strict";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { fetchText, pki, start } from "../../server/testing/server.ts";
import { Tenants } from "../../server/testing/tenants.ts";
import { until } from "../../shared/basics/testing/wait.ts";
import { Authority } from "../../shared/pki/certificates.ts";
import { Scrape } from "../harness/scrape.ts";

const NAME = "culvert_certificate_expiry_timestamp_seconds";
const DAY_MS = 86_400_000;

/** This number of days from now, without a fraction of a second, as certificates have it. */
const days = (count: number): Date => new Date(Math.floor(Date.now() / 1_000) * 1_000 + count * DAY_MS);

async function scrape(port: number | undefined): Promise<Scrape> {
  return new Scrape((await fetchText(port, "/metrics")).text);
}

test("metrics show when each certificate and CA ends; readyz and log announce what ends soon, and no client is refused", async () => {
  await using tenants = await Tenants.create(["blue", "red"]);
  const [blue, red] = [tenants.get("blue"), tenants.get("red")];
  const [soon, sooner, begun] = [days(20), days(5), days(-340)];
  const issue = async (tenant: typeof blue, notAfter: Date): Promise<object> => {
    const { cert, key } = await tenant.authority.issue({
      ...{ cn: tenant.name, names: [tenant.sni], usage: "server" },
      ...{ notBefore: notAfter === soon ? days(-350) : begun, notAfter },
    });
    const files = { cert: `${tenant.name}-side.crt`, key: `${tenant.name}-side.key` };
    await writeFile(join(tenants.folder, files.cert), cert);
    await writeFile(join(tenants.folder, files.key), key);
    return files;
  };
  await blue.write({ agents: await issue(blue, sooner) });
  await red.write({ agents: await issue(red, soon) });
  const server = await tenants.start();
  const { admin, health } = server.addresses;

  const all = await scrape(admin?.port);
  const seconds = (date: Date): number => date.getTime() / 1_000;
  assert.equal(all.value(NAME, { role: "agents_cert", cluster: "blue" }), seconds(sooner));
  assert.equal(all.value(NAME, { role: "agents_cert", cluster: "red" }), seconds(soon));
  for (const role of ["agents_ca", "callers_ca", "callers_cert"]) {
    assert.ok(all.value(NAME, { role, cluster: "blue" }) > seconds(days(300)), role);
  }
  const some = await scrape(health?.port);
  assert.equal(some.value(NAME, { role: "agents_cert" }), seconds(sooner));
  const start = NAME.replace("expiry", "start");
  assert.equal(some.value(start, { role: "agents_cert" }), seconds(begun), "of the same certificate");
  assert.equal(all.value(start, { role: "agents_cert", cluster: "blue" }), seconds(begun));

  const named = await fetchText(admin?.port, "/readyz?verbose");
  assert.equal(named.status, 200);
  const sentence = "the certificate of agents.cert ends within 7 days: agents refuse this server from then on";
  assert.ok(named.text.includes(`; warning: cluster "blue": ${sentence} (${sooner.toISOString()})`), named.text);
  assert.match(named.text, /cluster "red": the certificate of agents\.cert ends within 30 days/);
  assert.match(
    (await fetchText(health?.port, "/readyz?verbose")).text,
    /^\[\+\]certificates ok: .*2 warnings, named at/m,
  );
  const said = () => server.lines.filter(({ msg }) => msg.startsWith("the certificate of"));
  assert.deepEqual(
    said().map(({ level, cluster, msg }) => [level, cluster, msg]),
    [
      ["warn", "blue", sentence],
      ["warn", "red", sentence.replace("7 days", "30 days")],
    ],
  );

  await issue(blue, days(300));
  await until(async () => !(await fetchText(admin?.port, "/readyz?verbose")).text.includes('warning: cluster "blue"'));
  assert.equal(said().length, 2);
});

test("a CA of the flags that ends soon is reported by its flag, and one that has ended as such", async () => {
  const folder = pki.folder;
  const ending = await Authority.create("ending", 1);
  const clusterCaCert = join(folder, "ending.pem");
  await writeFile(clusterCaCert, ending.cert + pki.ca.cert);
  await using server = await start({ clusterCaCert });
  assert.ok(
    (await scrape(server.addresses.admin?.port)).value(NAME, { role: "agents_ca", cluster: "" }) <
      days(2).getTime() / 1_000,
  );
  // Made for a day and some minutes: it is far from its end until the last four hours.
  assert.doesNotMatch((await fetchText(server.addresses.admin?.port, "/readyz?verbose")).text, /--cluster-ca-cert/);
  const over = await Authority.create("over", 0);
  await writeFile(clusterCaCert, over.cert);
  const sentence = "the CA of --cluster-ca-cert has expired: agents with its certificates are refused";
  await until(async () => (await fetchText(server.addresses.admin?.port, "/readyz?verbose")).text.includes(sentence));
  assert.equal((await fetchText(server.addresses.admin?.port, "/readyz")).status, 200);
  assert.ok(
    server.lines.some(({ level, msg, file }) => level === "error" && msg === sentence && file === clusterCaCert),
  );
});
