import assert from "node:assert/strict";
import { test } from "node:test";
import { assertUnharmed, measure } from "../harness/bystander.ts";
import { connectThrough } from "../harness/caller.ts";
import { startAgentProcess } from "../harness/cluster-processes.ts";
import { type Flood, startFlood } from "../harness/flood.ts";
import { MemoryCgroup } from "../harness/memory-cgroup.ts";
import { Scrape } from "../harness/scrape.ts";
import { TARGETS } from "../harness/targets.ts";
import { startTwoTenants, type TwoTenants, type TwoTenantsOptions } from "../harness/two-tenants.ts";
import { waitFor } from "../harness/wait.ts";

const KIB = 1024;
const MIB = 1024 * KIB;
/**
 * What each target sends, bytes. A unix socket with Node's and our buffers takes less than a half before it stands still;
 * a TCP socket takes up to 4 MiB in the kernel, and as much at its peer. Without end it would fill the kernel's memory for
 * TCP with what the target sends, and slow everything down.
 */
const SENT = { uds: 512 * KIB, tls: 6 * MIB };

/** Of a server on which many have stopped. */
const LIMIT = 256 * MIB;

interface StalledCallers {
  readonly tenants: TwoTenants;
  readonly flood: Flood;
  /** A CONNECT to the cluster of those that have stopped. */
  readonly connect: TwoTenants["connect"];
}

/** Callers of red that stop reading, all on one tunnel, and what red and blue see when nobody has. */
async function withStalledCallers(
  count: number,
  via: "uds" | "tls",
  options: TwoTenantsOptions,
  check: (
    at: StalledCallers & { readonly idle: Record<"red" | "blue", Awaited<ReturnType<typeof measure>>> },
  ) => Promise<void>,
): Promise<void> {
  await using tenants = await startTwoTenants(options);
  const { red, agentPort, callerPort, target } = tenants;
  await using _agent = await startAgentProcess(red, agentPort);
  await using source = await TARGETS.source({ bytes: SENT[via] });
  const listener = await red.listener("tls", callerPort);
  const connect = () => connectThrough(listener, target, { deadlineMs: 10_000 });
  const idle = { red: await measure(connect), blue: await measure(tenants.connect) };
  const where = via === "uds" ? { path: red.uds } : { port: callerPort, tls: await callerTls(tenants) };
  await using flood = await startFlood("stalled-callers", {
    ...where,
    target: source.address,
    callers: count,
    atOnce: 16,
  });
  await waitFor(() => Number(flood.counts["answered"] ?? 0) + Number(flood.counts["refused"] ?? 0) >= count, {
    deadlineMs: 100_000,
    what: `${count} answers (${JSON.stringify(flood.counts)})`,
  });
  await check({ tenants, flood, connect, idle });
}

async function callerTls({ red }: TwoTenants) {
  return { ca: red.ca, ...(await red.caller), servername: red.sni };
}

/** On the health port no cluster is named: the sum of all. */
async function heldBytes({ healthPort }: TwoTenants): Promise<number> {
  const metrics = await fetch(`http://127.0.0.1:${healthPort}/metrics`);
  return new Scrape(await metrics.text()).value("culvert_server_memory_held_bytes");
}

for (const count of [500, 4_000]) {
  test(`${count} callers that stop reading keep nobody out: of their cluster neither, on the same tunnel`, async (t) => {
    await withStalledCallers(
      count,
      "uds",
      { server: { "memory-limit": LIMIT } },
      async ({ tenants, flood, connect, idle }) => {
        await assertUnharmed(connect, idle.red);
        await assertUnharmed(tenants.connect, idle.blue);
        const { answered, refused } = flood.counts;
        assert.deepEqual([answered, refused], [count, 0], "each of them was answered 200");
        const held = await heldBytes(tenants);
        t.diagnostic(`${Math.round(held / MIB)} MiB are held`);
        assert.ok(held <= LIMIT, `${held} bytes`);
      },
    );
  });
}

for (const [podMib, via, count] of [
  [256, "uds", 5_000],
  [512, "uds", 5_000],
  [256, "tls", 1_000],
] as const) {
  test(`a pod of ${podMib} MiB survives ${count} callers that stop reading (${via}), and serves others`, async (t) => {
    using cgroup = new MemoryCgroup(podMib * MIB);
    const process = { cgroupProcs: cgroup.procs };
    await withStalledCallers(count, via, { process }, async ({ tenants, connect, idle }) => {
      await assertUnharmed(tenants.connect, idle.blue);
      await using again = await connect();
      if (again.status !== 200) assert.match(again.reason, /^this server is at its memory limit/);
      t.diagnostic(`${Math.round(cgroup.usedBytes() / MIB)} MiB are charged to the pod`);
      assert.deepEqual([cgroup.kills(), tenants.server.running], [0, true]);
    });
  });
}
