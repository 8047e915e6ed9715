import assert from "node:assert/strict";
import { test } from "node:test";
import { assertUnharmed, measure } from "../harness/bystander.ts";
import { startFlood } from "../harness/flood.ts";
import { startTwoTenants, type TwoTenants } from "../harness/two-tenants.ts";

const GET = "GET /metrics HTTP/1.1\r\nHost:\r\n\r\n";
const RSS_GROWTH = 16 * 1024 * 1024;
/** What a kubelet gives a probe unless told otherwise (timeoutSeconds). */
const PROBE_MS = 1_000;

/** How long a probe of a kubelet takes, ms. */
async function probe({ healthPort }: TwoTenants): Promise<number> {
  const started = performance.now();
  const url = `http://127.0.0.1:${healthPort}/livez`;
  const answer = await fetch(url, { signal: AbortSignal.timeout(PROBE_MS) });
  assert.equal(await answer.text(), "ok\n");
  return performance.now() - started;
}

async function probes(tenants: TwoTenants): Promise<void> {
  for (let count = 0; count < 20; count++) await probe(tenants);
}

for (const [what, more] of [
  ["2,000 requests of /metrics in one packet, again and again on ten connections", { onceBytes: 64_000 }],
  ["requests of /metrics without end on ten connections", {}],
] as const) {
  test(`${what} of the health port: another tenant notices nothing`, async () => {
    await using tenants = await startTwoTenants();
    const { server, healthPort: port } = tenants;
    const idle = await measure(tenants.connect);
    await using flood = await startFlood("pipelined", { port, connections: 10, request: GET, ...more });
    await measure(tenants.connect, { windows: 4 }); // V8's young generation grows once, as under any load
    const before = server.peakRssBytes();
    const during = await measure(tenants.connect);
    await probes(tenants);
    const { opened, bytes } = await flood.stop();
    assert.ok(Number(bytes) > 640_000 && Number(opened) > 10, `${bytes} bytes in ${opened} connections`);
    assertUnharmed(idle, during);
    const growth = server.peakRssBytes() - before;
    assert.ok(growth <= RSS_GROWTH, `the server grew by ${growth} bytes at most`);
  });
}

test("5,000 idle connections at the health port displace each other: probes are answered, and descriptors stay free", async () => {
  await using tenants = await startTwoTenants();
  const { server, healthPort: port } = tenants;
  const idle = await measure(tenants.connect);
  const filesBefore = server.fdCount();
  await using flood = await startFlood("idle", { port, connections: 5_000, addresses: 50 });
  await measure(tenants.connect, { windows: 4 });
  const before = server.peakRssBytes();
  const during = await measure(tenants.connect);
  await probes(tenants);
  const held = server.fdCount() - filesBefore;
  const { opened, cut } = await flood.stop();
  assert.ok(held < 400, `they hold ${held} of the server's descriptors; ${opened} were opened, ${cut} were cut`);
  assertUnharmed(idle, during);
  const growth = server.peakRssBytes() - before;
  assert.ok(growth <= RSS_GROWTH, `the server grew by ${growth} bytes at most`);
});

test("4,200 idle connections at the health port leave CONNECT working at a limit of 4,096 open files", async () => {
  await using tenants = await startTwoTenants({ process: { fileLimit: 4_096 } });
  const { healthPort: port } = tenants;
  const idle = await measure(tenants.connect);
  await using _flood = await startFlood("idle", { port, connections: 4_200, addresses: 5 });
  const during = await measure(tenants.connect);
  assertUnharmed(idle, during);
  await probes(tenants);
});
