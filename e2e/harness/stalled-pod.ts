import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import { assertUnharmed } from "./bystander.ts";
import { MemoryCgroup } from "./memory-cgroup.ts";
import { isInOwnNetwork } from "./own-network.ts";
import { withStalledCallers } from "./stalled-callers.ts";

const KIB = 1024;
const MIB = 1024 * KIB;
const COUNT = 5_000;
/** Bytes that the target sends to each: more than twice as many as its path takes before it stops. */
const SENT = { uds: 512 * KIB, tls: 768 * KIB };
const LISTENERS = { uds: "on a unix socket", tls: "over TLS" } as const;

/**
 * With the kernel's own settings nobody over TLS would stop: up to 10 MiB of each connection wait in its sockets on
 * loopback, and to send more to thousands would take all memory that the machine has for TCP. Version 1 of control
 * groups charges none of that to a pod; what the server itself holds of each connection is the same.
 */
const SMALL_BUFFERS = { "net.ipv4.tcp_rmem": "4096 32768 65536", "net.ipv4.tcp_wmem": "4096 16384 65536" };

/** Declares the tests of a server in a pod of this size, on which thousands of callers have stopped reading. */
export async function testStalledCallersIn(podMib: number, ways: readonly ("uds" | "tls")[]): Promise<void> {
  if (!(await isInOwnNetwork(SMALL_BUFFERS))) return;
  for (const via of ways) {
    const name = `a pod of ${podMib} MiB survives ${COUNT} callers ${LISTENERS[via]} that stop reading, and serves others`;
    test(name, (t) => survives(t, podMib, via));
  }
}

async function survives(t: TestContext, podMib: number, via: "uds" | "tls"): Promise<void> {
  using cgroup = new MemoryCgroup(podMib * MIB);
  const process = { cgroupProcs: cgroup.procs };
  await withStalledCallers(
    { count: COUNT, via, sent: SENT[via], tenants: { process } },
    async ({ tenants, flood, connect }) => {
      const { answered, refused, refusedOtherwise, statusLine } = flood.counts;
      const charged = () => Math.round(cgroup.usedBytes() / MIB);
      t.diagnostic(`${charged()} MiB are charged to the pod; ${answered} were answered, ${refused} refused`);
      assert.equal(refusedOtherwise, 0, `each refusal names the process's limit, and not: ${statusLine}`);
      t.diagnostic(await assertUnharmed(tenants));
      await using again = await connect();
      if (again.status !== 200) assert.match(again.reason, /^this server is at its memory limit/);
      t.diagnostic(`${charged()} MiB are charged to the pod behind it`);
      assert.deepEqual([cgroup.kills(), tenants.server.running], [0, true]);
    },
  );
}
