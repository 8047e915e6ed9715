import assert from "node:assert/strict";
import { test } from "node:test";
import { tokensOf, trustTokens } from "../testing/insecure-port.ts";
import { until } from "../testing/server.ts";
import { type TenantServer, Tenants } from "../testing/tenants.ts";

/** Of a document whose agents' side says nothing but whose tokens count. */
const TOKEN_ONLY = { ca: undefined, identities: [] };

const warnings = ({ lines }: TenantServer) =>
  lines.filter(({ level, msg }) => level === "warn" && /token only/.test(msg));

test("a cluster whose tokens turn the flags' CA off is warned of once, at the start and when its document comes", async () => {
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

test("nobody is warned whose tokens leave the flags' CA alone, or who has none of the flags", async () => {
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
