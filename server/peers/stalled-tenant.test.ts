import assert from "node:assert/strict";
import { once } from "node:events";
import type { Socket } from "node:net";
import { test } from "node:test";
import { until } from "../../shared/basics/testing/wait.ts";
import { askAs, fleetOf, held } from "./testing/tenant-fleet.ts";

const KIB = 1024;
const STREAMS = 200;
/** Bytes that a stream with a stopped reader holds at one end at least: half of its first window. */
const LEAST = 32 * KIB;
/** More than the windows of both tunnels and the splices between take. */
const SENT = Buffer.alloc(512 * KIB);
const ROUNDS = 200;
/** A busy machine makes one run some times slower than another; a link that is full makes it endless. */
const RATIO = 10;

/** The median of round trips to echoes over the hop and without it, in turn, ms: both on the machine as it is. */
async function echoMs(hop: Socket, direct: Socket): Promise<{ readonly hop: number; readonly direct: number }> {
  const times = { hop: [] as number[], direct: [] as number[] };
  for (let round = 0; round < ROUNDS; round++) {
    times.hop.push(await roundTripMs(hop));
    times.direct.push(await roundTripMs(direct));
  }
  return { hop: median(times.hop), direct: median(times.direct) };
}

async function roundTripMs(socket: Socket): Promise<number> {
  const begun = performance.now();
  socket.write("?");
  await once(socket, "data");
  return performance.now() - begun;
}

function median(times: readonly number[]): number {
  return times.toSorted((one, other) => one - other)[times.length >> 1] ?? Number.NaN;
}

test("200 stalled connections of one cluster over another server delay none of another cluster on the same link", async (t) => {
  // The targets of blue say nothing, and never read.
  await using world = await fleetOf(["blue", "green"], {
    options: { drainTimeoutMs: 50 }, // nothing of what stands still is waited for at the end
    greetings: { blue: Buffer.alloc(0) },
  });
  const { near, far, tenants } = world;
  const [blue, green] = [tenants.get("blue"), tenants.get("green")];
  const [hop, direct] = [await askAs(near, green), await askAs(far, green)];
  for (const { status } of [hop, direct]) assert.match(status, /^HTTP\/1\.1 200 /);
  await echoMs(hop.socket, direct.socket); // compiled
  const idle = await echoMs(hop.socket, direct.socket);

  const stalled: Socket[] = [];
  while (stalled.length < STREAMS) {
    const { socket, status } = await askAs(near, blue);
    assert.match(status, /^HTTP\/1\.1 200 /);
    socket.write(SENT);
    stalled.push(socket);
  }
  for (const server of [near, far]) await until(async () => (await held(server, blue.name)) >= STREAMS * LEAST);
  // Stalled bytes have arrived: the links between the servers keep none of them for sending them again.
  for (const server of [near, far]) await until(async () => (await held(server, "(peers)")) < LEAST);
  const beside = await echoMs(hop.socket, direct.socket);
  const next = await askAs(near, green);
  assert.match(next.status, /^HTTP\/1\.1 200 /);
  await roundTripMs(next.socket);
  assert.ok(!stalled.some(({ destroyed }) => destroyed), "they all stand still, and none was ended");
  t.diagnostic(JSON.stringify({ idle, beside }));
  const slower = Math.max(1, beside.direct / idle.direct);
  assert.ok(beside.hop <= RATIO * slower * idle.hop, JSON.stringify({ idle, beside }));
  for (const socket of stalled) socket.destroy();
});
