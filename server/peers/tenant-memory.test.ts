import assert from "node:assert/strict";
import { test } from "node:test";
import { until } from "../../shared/basics/testing/wait.ts";
import type { TestServer } from "../testing/server.ts";
import type { Tenant } from "../testing/tenants.ts";
import { askAs, fleetOf, held } from "./testing/tenant-fleet.ts";

const KIB = 1024;
/** What a stream whose reader has stopped holds at one end, at least: half of its first window. */
const LEAST = 32 * KIB;
const STREAMS = 4;
/** More than the sockets of a caller take. */
const PAYLOAD = Buffer.alloc(8 * 1024 * KIB);

/** Callers that send and never read, of targets that do the same: their bytes stand still in both servers. */
async function stalled(server: TestServer, tenant: Tenant, count: number) {
  const sockets = [];
  for (let index = 0; index < count; index++) {
    const { socket } = await askAs(server, tenant); // one that is refused sends in vain
    socket.pause();
    socket.write(PAYLOAD);
    sockets.push(socket);
  }
  return sockets;
}

test("what stands still on the way over another server is charged to its cluster at both servers, and its limit presses nobody else", async () => {
  await using world = await fleetOf(["blue", "red"], { greetings: { blue: PAYLOAD, red: PAYLOAD } });
  const { near, far, tenants } = world;
  const [blue, red] = [tenants.get("blue"), tenants.get("red")];
  const reds = await stalled(near, red, STREAMS);
  // The links' replay buffers belong to no cluster. They are empty when nothing moves.
  const isCharged = async (server: TestServer) =>
    (await held(server, red.name)) >= STREAMS * LEAST && (await held(server, "(peers)")) < STREAMS * LEAST;
  for (const server of [near, far]) await until(() => isCharged(server));

  await blue.write({ callers: { uds: undefined }, limits: { memory: 1024 * KIB } }); // for the server with the agents
  await until(() => far.lines.some(({ msg }) => msg === "cluster changed"));
  const blues = await stalled(near, blue, 4 * STREAMS);
  await until(() => blues.some(({ destroyed }) => destroyed));
  assert.ok(!reds.some(({ destroyed }) => destroyed), "the other cluster has lost no connection");
  for (const server of [near, far]) {
    assert.ok((await held(server, red.name)) >= STREAMS * LEAST, "and its bytes are where they were");
  }

  for (const socket of [...reds, ...blues]) socket.destroy();
  for (const server of [near, far]) {
    for (const { name } of [blue, red]) await until(async () => (await held(server, name)) === 0);
  }
});
