import assert from "node:assert/strict";
import { test } from "node:test";
import type { Stream } from "../../shared/yamux/stream.ts";
import { assertUnharmed, measure } from "../harness/bystander.ts";
import { connectThrough } from "../harness/caller.ts";
import { GROWTH_MEASURED, ResidentGrowth } from "../harness/resident-growth.ts";
import { tenantAgent } from "../harness/tenant-agent.ts";
import { startTwoTenants } from "../harness/two-tenants.ts";
import { waitFor } from "../harness/wait.ts";

const MIB = 1024 * 1024;
/** With the frame of one byte in front of it, and both headers, about what one TLS record holds. */
const PADDING = Buffer.alloc(16_200, "p");
const ATTACK_BYTES = 200 * MIB;
const FILLING = 300 * 1024;

test("pieces of one byte that a caller leaves unread, each in a read of 16 KiB, hold no more than they are", async () => {
  await using tenants = await startTwoTenants({ process: GROWTH_MEASURED });
  const idle = await measure(tenants.connect);
  await using agent = await tenantAgent(tenants.red, tenants.agentPort);
  await using stopped = await connectThrough(await tenants.red.listener("uds", 0), "10.0.0.1:1");
  stopped.socket.pause();
  await using reading = await connectThrough(await tenants.red.listener("tls", tenants.callerPort), "10.0.0.2:1");
  reading.socket.resume();
  const [pieces, padding] = agent.streams as [Stream, Stream];
  // The kernel takes 208 KiB of it and Node 64 KiB: what follows waits in the window of the stream.
  pieces.write(Buffer.alloc(FILLING));
  await waitFor(() => pieces.writableLength === 0, { deadlineMs: 10_000, what: "the caller's sockets to be full" });

  const growth = await ResidentGrowth.of(tenants.server);
  const attack = (async () => {
    for (let sent = 0; sent < ATTACK_BYTES; sent += PADDING.length) {
      pieces.write("x");
      await new Promise((resolve) => padding.write(PADDING, resolve)); // each pair of frames goes alone
    }
  })();
  await assertUnharmed(tenants.connect, idle);
  await attack;
  await waitFor(() => reading.socket.bytesRead > ATTACK_BYTES, { deadlineMs: 20_000, what: "the last of the padding" });
  await growth.assertBounded(32 * MIB);
  assert.equal(agent.session.streamCount, 2, "nobody was cut");
});
