import assert from "node:assert/strict";
import { test } from "node:test";
import type { Line, TestServer } from "../../server/testing/server.ts";
import { Tenants } from "../../server/testing/tenants.ts";
import { until } from "../../shared/basics/testing/wait.ts";

async function lineOf(server: TestServer, msg: string): Promise<Line> {
  await until(() => server.lines.some((line) => line.msg === msg));
  return server.lines.find((line) => line.msg === msg) ?? assert.fail();
}

test("a cluster that is added, changed, suspended or resumed causes one log line without its contents", async () => {
  await using tenants = await Tenants.create(["blue", "red"]);
  const [blue, red] = [tenants.get("blue"), tenants.get("red")];
  await red.remove();
  const server = await tenants.start();
  assert.equal((await lineOf(server, "server started"))["clusters"], 1);

  await red.write();
  const added = await lineOf(server, "cluster added");
  assert.deepEqual([added.level, added["cluster"]], ["info", "red"]);

  await blue.write({ deny: ["192.0.2.0/24"], agents: { maxAgents: 7, identities: ["CN=somebody-else"] } });
  const changed = await lineOf(server, "cluster changed");
  assert.deepEqual([changed.level, changed["cluster"], changed["changed"]], ["info", "blue", ["agents", "deny"]]);
  assert.doesNotMatch(JSON.stringify(changed), /192\.0\.2|somebody/);

  for (const [suspended, msg] of [
    [true, "cluster suspended"],
    [false, "cluster resumed"],
  ] as const) {
    await red.write({ suspended });
    const line = await lineOf(server, msg);
    assert.deepEqual([line.level, line["cluster"], line["changed"]], ["warn", "red", ["suspended"]]);
  }
  assert.equal(server.lines.filter(({ msg }) => /^cluster (added|changed)$/.test(msg)).length, 2);
});

test("a server whose folder holds no cluster says so when it starts", async () => {
  await using tenants = await Tenants.create([]);
  const server = await tenants.start();
  assert.equal((await lineOf(server, "server started"))["clusters"], 0);
  const warnings = server.lines.filter(({ level }) => level === "warn").map(({ msg }) => msg);
  assert.ok(warnings.includes("there are no clusters yet: every caller and agent is refused"), String(warnings));
});
