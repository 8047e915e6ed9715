import assert from "node:assert/strict";
import { cp, mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { until } from "../../shared/basics/testing/wait.ts";
import { collect, type TestServer } from "../testing/server.ts";
import { agentAt, callerAt, type Tenant, Tenants } from "../testing/tenants.ts";
import { LinkShares } from "./link-shares.ts";
import { Fleet } from "./testing/fleet.ts";

/** Two servers with documents of the same clusters; the agents are at the second, whose documents say more. */
async function fleetOf(names: readonly string[], more: object = {}, options: Parameters<Fleet["start"]>[1] = {}) {
  const tenants = await Tenants.create(names);
  for (const name of names) await tenants.get(name).write({ callers: { uds: undefined } });
  const folder = await mkdtemp(join(tmpdir(), "culvert-tenants-"));
  await cp(tenants.folder, folder, { recursive: true });
  for (const name of names) await tenants.get(name).write({ callers: { uds: undefined }, ...more });
  const fleet = new Fleet();
  const near = await fleet.start("srv-1", { clusters: folder, ...options });
  const far = await fleet.start("srv-2", { clusters: tenants.folder });
  for (const name of names) {
    const at = tenants.get(name);
    await agentAt(far, undefined, { at, by: at.agent });
    await until(() => fleet.hub.holders(name).join() === "srv-2");
  }
  return {
    ...{ near, far, tenants },
    [Symbol.asyncDispose]: async () => {
      await fleet[Symbol.asyncDispose]();
      await tenants[Symbol.asyncDispose]();
      await rm(folder, { recursive: true, force: true });
    },
  };
}

async function ask(server: TestServer, tenant: Tenant, target = "10.0.0.1:10250") {
  const socket = await callerAt(server, tenant.sni, tenant.caller);
  const reads = collect(socket);
  socket.write(`CONNECT ${target} HTTP/1.1\r\nHost: x\r\n\r\n`);
  await until(() => reads.join("").includes("\r\n\r\n") || socket.destroyed);
  return { socket, text: reads.join(""), status: reads.join("").split("\r\n", 1)[0] ?? "" };
}

test("one cluster gets half of the streams to another server, and the others find room there", async () => {
  await using world = await fleetOf(["blue", "red"], {}, { maxStreams: 4 });
  const { near, tenants } = world;
  const [blue, red] = [tenants.get("blue"), tenants.get("red")];
  const first = await ask(near, blue);
  assert.match(first.status, /^HTTP\/1\.1 200 /);
  assert.match((await ask(near, blue)).status, /^HTTP\/1\.1 200 /);
  const refused = await ask(near, blue);
  assert.match(
    refused.text,
    /^HTTP\/1\.1 429 cluster "blue" has 2 connections over server "srv-2", half of what the link to it carries \(--max-streams\): try again later\r\n/,
  );
  assert.match(refused.text, /\r\nRetry-After: 1\r\n/);
  assert.match((await ask(near, red)).status, /^HTTP\/1\.1 200 /);
  assert.match((await ask(near, red)).status, /^HTTP\/1\.1 200 /);
  first.socket.destroy();
  await until(async () => (await ask(near, blue)).status.startsWith("HTTP/1.1 200 "));
});

test("a cluster without streams is not kept, and one stream of a link is left to each", () => {
  const shares = new LinkShares("srv-2", 1);
  for (let round = 0; round < 3; round++) {
    const leave = shares.enter("blue");
    assert.throws(() => shares.enter("blue"), { code: "limited" });
    shares.enter("red")();
    leave();
  }
  assert.equal(shares.size, 0);
});

test("a target that only the server with the agent denies is refused there, and the caller reads its sentence", async () => {
  await using world = await fleetOf(["blue"], { deny: ["10.0.0.9"] });
  const { near, far, tenants } = world;
  const blue = tenants.get("blue");
  const [direct, hop] = [await ask(far, blue, "10.0.0.9:443"), await ask(near, blue, "10.0.0.9:443")];
  assert.match(hop.status, /^HTTP\/1\.1 403 .*10\.0\.0\.9/);
  assert.equal(hop.status, direct.status);
  assert.match((await ask(near, blue)).status, /^HTTP\/1\.1 200 /);
});
