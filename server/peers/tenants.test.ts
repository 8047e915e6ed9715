import assert from "node:assert/strict";
import { test } from "node:test";
import { until } from "../../shared/basics/testing/wait.ts";
import type { TestServer } from "../testing/server.ts";
import type { Tenant } from "../testing/tenants.ts";
import { LinkShares } from "./peer-link.ts";
import { askAs, fleetOf, held } from "./testing/tenant-fleet.ts";

test("a cluster gets as many streams to another server as it leaves free, and the others find room there", async () => {
  await using world = await fleetOf(["blue", "red"], { options: { maxStreams: 5 } });
  const { near, tenants } = world;
  const [blue, red] = [tenants.get("blue"), tenants.get("red")];
  const first = await askAs(near, blue);
  assert.match(first.status, /^HTTP\/1\.1 200 /);
  for (let more = 0; more < 2; more++) assert.match((await askAs(near, blue)).status, /^HTTP\/1\.1 200 /);
  const refused = await askAs(near, blue);
  assert.match(
    refused.text,
    /^HTTP\/1\.1 429 cluster "blue" has 3 connections over server "srv-2", and the link to it keeps room for others \(--max-streams\): try again later\r\n/,
  );
  assert.match(refused.text, /\r\nRetry-After: 1\r\n/);
  const ofRed = await askAs(near, red);
  assert.match(ofRed.status, /^HTTP\/1\.1 200 /);
  assert.match((await askAs(near, red)).status, /^HTTP\/1\.1 429 cluster "red" has 1 connections /);
  for (const { socket } of [first, ofRed]) socket.destroy();
  await until(async () => (await askAs(near, blue)).status.startsWith("HTTP/1.1 200 "));
});

test("limits.streams counts the callers of each server, and not those that come over another one", async () => {
  await using world = await fleetOf(["blue"], { more: { limits: { streams: 1 } } });
  const { near, far, tenants } = world;
  const blue = tenants.get("blue");
  for (let open = 0; open < 2; open++) assert.match((await askAs(near, blue)).status, /^HTTP\/1\.1 200 /);
  assert.match((await askAs(far, blue)).status, /^HTTP\/1\.1 200 /);
  assert.match((await askAs(far, blue)).status, /^HTTP\/1\.1 429 .*\(limits\.streams\)$/);
});

test("a cluster without streams is not kept, and one stream of a link is left to each", () => {
  const shares = new LinkShares("srv-2", 1);
  for (let round = 0; round < 3; round++) {
    const leave = shares.join("blue");
    assert.throws(() => shares.join("blue"), { code: "limited" });
    shares.join("red")();
    leave();
  }
  assert.equal(shares.size, 0);
});

test("a target that only the server with the agent denies is refused there, and the caller reads its sentence", async () => {
  await using world = await fleetOf(["blue"], { more: { deny: ["10.0.0.9"] } });
  const { near, far, tenants } = world;
  const blue = tenants.get("blue");
  const [direct, hop] = [await askAs(far, blue, "10.0.0.9:443"), await askAs(near, blue, "10.0.0.9:443")];
  assert.match(hop.status, /^HTTP\/1\.1 403 .*10\.0\.0\.9/);
  assert.equal(hop.status, direct.status);
  assert.match((await askAs(near, blue)).status, /^HTTP\/1\.1 200 /);
});

const KIB = 1024;
/** Bytes that a stream with a stopped reader holds at one end at least: half of its first window. */
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
