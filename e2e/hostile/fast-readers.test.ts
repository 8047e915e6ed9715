import assert from "node:assert/strict";
import { test } from "node:test";
import type { PlayedAgent } from "../../server/testing/played-agent.ts";
import { connectThrough } from "../harness/caller.ts";
import { answered, tenantAgent } from "../harness/tenant-agent.ts";
import { startTwoTenants, type TwoTenants } from "../harness/two-tenants.ts";
import { waitFor } from "../harness/wait.ts";

const KIB = 1024;
const MIB = 1024 * KIB;
/** Over TCP each of them counts up to 4 MiB that the kernel has. */
const FAST_READERS = 32;
const CHUNK = Buffer.alloc(64 * KIB);

/** An agent of red that sends to each caller whatever is taken. */
function sendingAgent({ red, agentPort }: TwoTenants): Promise<PlayedAgent> {
  return tenantAgent(red, agentPort, {
    onStream: (stream) => {
      stream.on("error", () => {});
      const send = (): void => {
        while (!stream.destroyed && stream.write(CHUNK));
      };
      const begin = (): void => {
        stream.on("drain", send);
        send();
      };
      void answered(stream).then(begin, () => {});
    },
  });
}

test("transfers whose readers keep up go on in a cluster that is above its limits.memory with them", async (t) => {
  await using tenants = await startTwoTenants({
    server: { "memory-limit": 1024 * MIB },
    red: { limits: { memory: "16MiB" } },
  });
  await using _agent = await sendingAgent(tenants);
  const listener = await tenants.red.listener("tls", tenants.callerPort);
  const callers = await Promise.all(Array.from({ length: FAST_READERS }, () => connectThrough(listener, "10.0.0.1:1")));
  assert.deepEqual(new Set(callers.map(({ status }) => status)), new Set([200]));
  const received = callers.map(({ socket }) => {
    const count = { bytes: 0 };
    socket
      .on("error", () => {})
      .on("data", (chunk) => {
        count.bytes += chunk.length;
      });
    socket.resume();
    return count;
  });
  try {
    const least = () => Math.min(...received.map(({ bytes }) => bytes));
    await waitFor(() => least() >= 8 * MIB, { deadlineMs: 60_000, what: "8 MiB at each caller" });
    t.diagnostic(`${received.map(({ bytes }) => Math.round(bytes / MIB))} MiB`);
    assert.deepEqual(callers.filter(({ socket }) => socket.destroyed || socket.readableEnded).length, 0);
  } finally {
    for (const { socket } of callers) socket.destroy();
  }
});
