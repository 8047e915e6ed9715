import assert from "node:assert/strict";
import { test } from "node:test";
import { tokensOf, trustTokens } from "../../server/testing/insecure-port.ts";
import { fetchText, type TestServer } from "../../server/testing/server.ts";
import { Tenants } from "../../server/testing/tenants.ts";
import { until } from "../../shared/basics/testing/wait.ts";

/** The agents' side of a document that accepts tokens only. */
const TOKEN_ONLY = { ca: undefined, identities: [] };

const warnings = ({ lines }: TestServer) =>
  lines.filter(({ level, msg }) => level === "warn" && /token only/.test(msg));

test("a document that accepts tokens only causes one warning about the CA of the flags, at the start and when it is added", async () => {
  await using tenants = await Tenants.create(["blue", "red"]);
  for (const name of ["blue", "red"]) await trustTokens(tenants, name);
  const [blue, red] = [tenants.get("blue"), tenants.get("red")];
  await blue.write({ agents: { ...tokensOf("blue"), ...TOKEN_ONLY } });
  const server = await tenants.start();
  assert.equal(warnings(server).length, 1);
  assert.match(
    warnings(server)[0]?.msg ?? "",
    /^agents of cluster "blue" \(.*blue\.yaml\) come with a token only: .*--cluster-ca-cert/,
  );

  await red.write({ agents: { ...tokensOf("red"), ...TOKEN_ONLY } });
  await until(() => warnings(server).length === 2);
  assert.equal(warnings(server)[1]?.["cluster"], "red");
  const changes = () => server.lines.filter(({ msg }) => msg === "cluster changed").length;
  for (const [count, more] of [
    [2, { maxAgents: 7 }],
    [3, { identities: ["CN=a"] }],
  ] as const) {
    await red.write({ agents: { ...tokensOf("red"), ...TOKEN_ONLY, ...more } });
    await until(() => changes() === count);
  }
  assert.equal(warnings(server).length, 2, "what was told is not told again, nor what is no more");
});

test("no warning where the CA of the flags counts, or there is none", async () => {
  await using tenants = await Tenants.create(["blue", "red"]);
  for (const name of ["blue", "red"]) await trustTokens(tenants, name);
  await tenants.get("blue").write({ agents: { ...tokensOf("blue"), identities: [] } });
  await tenants.get("red").write({ agents: { ...tokensOf("red"), ca: undefined } });
  const server = await tenants.start();
  assert.deepEqual(warnings(server), []);

  await using alone = await Tenants.create(["gold"]);
  await trustTokens(alone, "gold");
  await alone.get("gold").write({ agents: { ...tokensOf("gold"), ...TOKEN_ONLY } });
  const without = await alone.start({ clusterCert: "", clusterKey: "", clusterCaCert: "" });
  assert.deepEqual(warnings(without), []);
});

test("the warning about one CA for both roles is in log and readyz, at the start and after a change, until it is removed", async () => {
  await using tenants = await Tenants.create(["blue"]);
  const blue = tenants.get("blue");
  await blue.write({ callers: { identities: [] } });
  const server = await tenants.start();
  const warned = () => server.lines.filter(({ level, msg }) => level === "warn" && /same CA/.test(msg)).length;
  const shown = async () =>
    /configuration ok: warning: callers and agents of cluster "blue" .*give callers\.identities, or/.test(
      (await fetchText(server.addresses.admin?.port, "/readyz?verbose")).text,
    );
  assert.equal(warned(), 1);
  assert.ok(await shown());
  await blue.write();
  await until(async () => !(await shown()));
  await blue.write({ callers: { identities: [] } });
  await until(shown);
  assert.equal(warned(), 2);
});
