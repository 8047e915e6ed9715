import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { mkdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { fetchText, type TestServer } from "../../server/testing/server.ts";
import { answerOf, Tenants, unixCallerAt } from "../../server/testing/tenants.ts";
import { until } from "../../shared/basics/testing/wait.ts";
import { ConfigError } from "../../shared/config/options.ts";

async function readyz(server: TestServer) {
  return await fetchText(server.addresses.admin?.port, "/readyz?verbose");
}

async function faults(server: TestServer): Promise<number> {
  const { text } = await fetchText(server.addresses.admin?.port, "/metrics");
  return Number(/^culvert_server_cluster_faults (\d+)$/m.exec(text)?.[1]);
}

test("a socket that cannot be opened is reported with file and key, and opened as soon as it can be", async () => {
  await using tenants = await Tenants.create(["blue", "red"]);
  const server = await tenants.start();
  const red = tenants.get("red");
  await red.write({ callers: { uds: "later/red.sock" } });

  const says = /red\.yaml: callers\.uds: cannot listen on \S+\/later\/red\.sock: its folder does not exist/;
  await until(async () => says.test((await readyz(server)).text));
  assert.equal((await readyz(server)).status, 200, "the other clusters need this server");
  assert.equal(await faults(server), 1);
  assert.ok(
    server.lines.some(
      ({ level, cluster, reason }) => level === "error" && cluster === "red" && says.test(String(reason)),
    ),
  );
  assert.match(
    await answerOf(await unixCallerAt(tenants.get("blue").uds)),
    /^HTTP\/1\.1 503 no agent of cluster "blue"/,
  );

  await mkdir(join(tenants.folder, "later"));
  const path = join(tenants.folder, "later", "red.sock");
  await until(() => existsSync(path));
  assert.match(await answerOf(await unixCallerAt(path)), /^HTTP\/1\.1 503 no agent of cluster "red"/);
  await until(async () => (await faults(server)) === 0);
  assert.doesNotMatch((await readyz(server)).text, /callers\.uds/);
});

test("a document that names another socket ends the attempts to open the first", async () => {
  await using tenants = await Tenants.create(["blue"]);
  const server = await tenants.start();
  const blue = tenants.get("blue");
  await blue.write({ callers: { uds: "later/blue.sock" } });
  await until(async () => (await faults(server)) === 1);
  await blue.write();
  await until(() => existsSync(blue.uds));
  await until(async () => (await faults(server)) === 0);
  assert.match(await answerOf(await unixCallerAt(blue.uds)), /^HTTP\/1\.1 503 /);
});

test("a start whose document names a socket that cannot be opened says file and key", async () => {
  await using tenants = await Tenants.create(["blue"]);
  await tenants.get("blue").write({ callers: { uds: "blue.yaml" } });
  const before = await readFile(join(tenants.folder, "blue.yaml"), "utf8");
  await assert.rejects(
    tenants.start(),
    (error) => error instanceof ConfigError && /blue\.yaml: callers\.uds: .* is not a socket/.test(error.message),
  );
  assert.equal(await readFile(join(tenants.folder, "blue.yaml"), "utf8"), before);
});
