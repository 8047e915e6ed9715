import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import { assertUnharmed } from "../harness/bystander.ts";
import type { CallerListener } from "../harness/caller.ts";
import { scrapePort } from "../harness/scrape.ts";
import { withStalledCallers } from "../harness/stalled-callers.ts";
import type { TwoTenants } from "../harness/two-tenants.ts";
import { waitFor } from "../harness/wait.ts";

const KIB = 1024;
const MIB = 1024 * KIB;
/** A unix socket with Node's and our buffers takes less than a half of it before it stands still. */
const SENT = 512 * KIB;
/** Of a server on which many have stopped. */
const LIMIT = 256 * MIB;
/** CONNECTs often enough for their percentile. */
const MEASURED = { connectEveryMs: 2 };

/** On the health port no cluster is named: the sum of all. */
async function heldBytes({ healthPort }: TwoTenants): Promise<number> {
  return (await scrapePort(healthPort)).value("culvert_server_memory_held_bytes");
}

/** Other callers of red, the cluster of those that have stopped, and blue's, which are measured at the same time. */
async function assertBothUnharmed(t: TestContext, tenants: TwoTenants, listener: CallerListener): Promise<void> {
  const [red, blue] = await Promise.all([
    assertUnharmed(tenants, { ...MEASURED, listener }),
    assertUnharmed(tenants, MEASURED),
  ]);
  t.diagnostic(`red: ${red}`);
  t.diagnostic(`blue: ${blue}`);
}

const COUNT = 4_000;

test(`${COUNT} callers that stop reading keep nobody out: of their cluster neither, on the same tunnel`, async (t) => {
  const tenants = { server: { "memory-limit": LIMIT } };
  await withStalledCallers({ count: COUNT, via: "uds", sent: SENT, tenants }, async ({ tenants, flood, listener }) => {
    await assertBothUnharmed(t, tenants, listener);
    const { answered, refused } = flood.counts;
    assert.deepEqual([answered, refused], [COUNT, 0], "each of them was answered 200");
    const held = await heldBytes(tenants);
    t.diagnostic(`${Math.round(held / MIB)} MiB are held`);
    assert.ok(held <= LIMIT, `${held} bytes`);
  });
});

/** Less than half of what this number of readers would hold. */
const CAP = 32 * MIB;
const CAPPED = 300;

test("a cluster holds what limits.memory of its document allows, although the process has enough", async (t) => {
  const tenants = { server: { "memory-limit": LIMIT }, red: { limits: { memory: "32MiB" } } };
  await withStalledCallers({ count: CAPPED, via: "uds", sent: SENT, tenants }, async ({ tenants, listener }) => {
    const isCapped = async () => (await heldBytes(tenants)) <= CAP;
    await waitFor(isCapped, { deadlineMs: 10_000, everyMs: 500, what: "stalled callers to be ended" });
    await assertBothUnharmed(t, tenants, listener);
    const held = await heldBytes(tenants);
    t.diagnostic(`${Math.round(held / MIB)} MiB are held`);
    assert.ok(held > CAP / 2 && held <= CAP, `${held} bytes`);
  });
});

test("a cluster of 5000 kubelets keeps a connection for each, on one tunnel", async (t) => {
  await withStalledCallers({ count: 5_000, via: "uds", sent: 1 }, async ({ tenants, flood, listener }) => {
    await assertBothUnharmed(t, tenants, listener);
    assert.equal(flood.counts["answered"], 5_000);
  });
});
