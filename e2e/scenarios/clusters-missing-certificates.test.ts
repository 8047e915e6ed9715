import assert from "node:assert/strict";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { tokensOf, trustTokens } from "../../server/testing/insecure-port.ts";
import { fetchText, type TestServer } from "../../server/testing/server.ts";
import { Tenants } from "../../server/testing/tenants.ts";
import { until } from "../../shared/basics/testing/wait.ts";

const NO_FLAGS = {
  ...{ clusterCert: "", clusterKey: "", clusterCaCert: "" },
  ...{ serverCert: "", serverKey: "", serverCaCert: "" },
};
const NO_PAIR = { cert: undefined, key: undefined };

/** Missing certificates by readyz and by the log's warnings, without the file. */
async function told({ addresses, lines }: TestServer): Promise<{ readyz: string[]; warned: string[] }> {
  const { text, status } = await fetchText(addresses.admin?.port, "/readyz?verbose");
  assert.equal(status, 200, "the other clusters need this server");
  const sentences = (texts: readonly string[]) =>
    texts.flatMap((one) => one.match(/cluster "[a-z]+": \S+\.(cert|ca).* missing: .*?(have them|has one)/g) ?? []);
  const warnings = lines.filter(({ level }) => level === "warn").map(({ msg }) => msg);
  return { readyz: sentences(text.split(/[\n;]/)), warned: sentences(warnings) };
}

test("a document with a name only causes one warning for each side about what is missing", async () => {
  await using tenants = await Tenants.create([]);
  await writeFile(join(tenants.folder, "blue.yaml"), "name: blue\n");
  const server = await tenants.start(NO_FLAGS);
  const { readyz, warned } = await told(server);
  assert.deepEqual(warned, [
    'cluster "blue": agents.cert, agents.key and agents.ca are missing: neither the document nor --cluster-cert, --cluster-key and --cluster-ca-cert have them',
    'cluster "blue": callers.cert, callers.key and callers.ca are missing: neither the document nor --server-cert, --server-key and --server-ca-cert have them',
  ]);
  assert.deepEqual(readyz, warned);
});

for (const names of [[], ["blue.example"]]) {
  test(`a CA or certificate that was forgotten is named, ${names.length === 0 ? "without" : "with"} server names`, async () => {
    await using tenants = await Tenants.create(["blue"]);
    const blue = tenants.get("blue");
    await blue.write({
      agents: { sni: [...names], ca: undefined },
      callers: { sni: [...names], uds: undefined, ...NO_PAIR },
    });
    const server = await tenants.start(NO_FLAGS);
    const expected = [
      'cluster "blue": agents.ca is missing: neither the document nor --cluster-ca-cert has one',
      'cluster "blue": callers.cert and callers.key are missing: neither the document nor --server-cert and --server-key have them',
    ];
    assert.deepEqual(await told(server), { readyz: expected, warned: expected });

    await blue.write({ agents: { sni: [...names] }, callers: { sni: [...names], uds: undefined } });
    await until(async () => (await told(server)).readyz.length === 0);
    await blue.write({ agents: { sni: [...names] }, callers: { sni: [...names], uds: undefined, ca: undefined } });
    await until(async () => /callers\.ca is missing/.test((await told(server)).warned.at(-1) ?? ""));
    assert.equal((await told(server)).warned.length, 3);
  });
}

test("nothing is missing where the flags have it, nor for callers of a unix socket alone", async () => {
  await using tenants = await Tenants.create(["blue"]);
  const unixOnly = { sni: [], ca: undefined, ...NO_PAIR };
  await tenants.get("blue").write({ agents: { sni: [], ca: undefined, ...NO_PAIR }, callers: unixOnly });
  const server = await tenants.start({ serverCert: "", serverKey: "", serverCaCert: "" });
  assert.deepEqual(await told(server), { readyz: [], warned: [] });
});

test("agents that need only a token cause a warning about the port that is left to them, and no fault", async () => {
  await using tenants = await Tenants.create(["blue"]);
  await trustTokens(tenants, "blue");
  const tokenOnly = { ...tokensOf("blue"), sni: [], identities: [], ca: undefined, ...NO_PAIR };
  await tenants.get("blue").write({ agents: tokenOnly });
  const server = await tenants.start(NO_FLAGS);
  assert.deepEqual((await told(server)).readyz, []);
  const warnings = server.lines.filter(({ level }) => level === "warn").map(({ msg }) => msg);
  assert.match(
    warnings.join("\n"),
    /: agents\.cert and agents\.key are missing: .*, so its agents can come by --agent-insecure-port only$/m,
  );
});
