import assert from "node:assert/strict";
import { test } from "node:test";
import { assertUnharmed, BESIDE_ANYBODY } from "../harness/bystander.ts";
import { WHOLE_MATRICES } from "../harness/counts.ts";
import { startFlood } from "../harness/flood.ts";
import { GROWTH_MEASURED, ResidentGrowth } from "../harness/resident-growth.ts";
import { startTwoTenants, type TwoTenants } from "../harness/two-tenants.ts";

const GET = "GET /metrics HTTP/1.1\r\nHost:\r\n\r\n";
/**
 * 1,400 answers of 36 KB a second fill pages of V8's heap faster than they are collected: 20 MB, which stay once they
 * were needed and did not become more in three times the time (measured). This is twice that.
 */
const MOST_GROWTH_BYTES = 40 * 1024 * 1024;

/** A kubelet's probes are answered; how soon is measured by `assertUnharmed`. */
async function probes({ healthPort }: TwoTenants): Promise<void> {
  for (let count = 0; count < 20; count++) {
    const answer = await fetch(`http://127.0.0.1:${healthPort}/livez`, { signal: AbortSignal.timeout(15_000) });
    assert.equal(await answer.text(), "ok\n");
  }
}

const PIPELINED = [
  ["2,000 requests of /metrics in one packet, again and again on ten connections", { onceBytes: 64_000 }],
  ["requests of /metrics without end on ten connections", {}],
] as const;

for (const [what, more] of WHOLE_MATRICES ? PIPELINED : PIPELINED.slice(0, 1)) {
  test(`${what} of the health port: another tenant notices nothing`, async (t) => {
    await using tenants = await startTwoTenants({ process: GROWTH_MEASURED });
    const { server, calmServer, healthPort: port } = tenants;
    const growth = await ResidentGrowth.of(server, calmServer);
    await using flood = await startFlood("pipelined", { port, connections: 10, request: GET, ...more });
    t.diagnostic(await assertUnharmed(tenants, BESIDE_ANYBODY));
    await growth.assertBounded(MOST_GROWTH_BYTES);
    await probes(tenants);
    const { opened, bytes } = await flood.stop();
    assert.ok(Number(bytes) > 640_000 && Number(opened) > 10, `${bytes} bytes in ${opened} connections`);
  });
}

test("5,000 idle connections at the health port displace each other: probes are answered, and descriptors stay free", async (t) => {
  await using tenants = await startTwoTenants({ process: GROWTH_MEASURED });
  const { server, calmServer, healthPort: port } = tenants;
  const growth = await ResidentGrowth.of(server, calmServer);
  const filesBefore = server.fdCount();
  await using flood = await startFlood("idle", { port, connections: 5_000, addresses: 50 });
  t.diagnostic(await assertUnharmed(tenants, BESIDE_ANYBODY));
  await growth.assertBounded();
  await probes(tenants);
  const held = server.fdCount() - filesBefore;
  const { opened, cut } = await flood.stop();
  assert.ok(held < 400, `they hold ${held} of the server's descriptors; ${opened} were opened, ${cut} were cut`);
});

test("4,200 idle connections at the health port leave CONNECT working at a limit of 4,096 open files", async (t) => {
  await using tenants = await startTwoTenants({ process: { fileLimit: 4_096 } });
  const { healthPort: port } = tenants;
  await using _flood = await startFlood("idle", { port, connections: 4_200, addresses: 5 });
  t.diagnostic(await assertUnharmed(tenants, BESIDE_ANYBODY));
  await probes(tenants);
});
