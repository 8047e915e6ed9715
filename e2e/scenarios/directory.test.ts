import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { FleetWorld } from "../harness/fleet-world.ts";
import { NatsServers } from "../harness/nats-servers.ts";
import { TempDir } from "../harness/temp.ts";
import { waitFor } from "../harness/wait.ts";

const NAMES = ["a", "b", "c"];

test("with NATS as the directory any server reaches the agent; without NATS its own server does, and all comes back by itself", async () => {
  using dir = new TempDir();
  const config = 'authorization { user: "culvert", password: "secret" }';
  await using nats = await NatsServers.start({ dir: dir.path, config });
  await using fleet = await FleetWorld.start(NAMES, (folder) => {
    writeFileSync(join(folder, "nats"), "culvert:secret\n");
    return { directory: nats.urls(), directoryCredentials: join(folder, "nats") };
  });
  await fleet.untilConnected(...NAMES);
  await fleet.startAgent("c");
  const open = await fleet.echo("a");
  await fleet.echo("c");

  await nats.kill();
  await waitFor(async () => /not connected for/.test((await fleet.readiness("b")).line));
  await fleet.echo("c");
  assert.equal((await fleet.readiness("c")).status, 200, "agents of this server work");
  await open.send("still here");
  assert.equal((await open.readBytes(10, 5_000)).toString(), "still here");
  await fleet.echo("a"); // it has asked a moment ago
  const refused = await fleet.connect("b");
  assert.equal(refused.status, 503);
  assert.match(refused.reason, /other servers cannot be found: the directory is not reachable/);

  await nats.start();
  await waitFor(async () => (await fleet.connect("b")).status === 200, { deadlineMs: 10_000 });
});

test("three NATS servers in a cluster: one that is killed is replaced by another, and a dead server's agents are found elsewhere", async () => {
  using dir = new TempDir();
  await using nats = await NatsServers.start({ dir: dir.path, count: 3 });
  await using fleet = await FleetWorld.start(NAMES, () => ({ directory: nats.urls() }));
  await fleet.untilConnected(...NAMES);
  await fleet.startAgent("b");
  await waitFor(async () => (await fleet.connect("a")).status === 200);

  const through = (await fleet.readiness("a")).line;
  await nats.kill(nats.numberOf(/127\.0\.0\.1:\d+/.exec(through)?.[0] ?? ""));
  await fleet.untilConnected("a");
  await fleet.echo("a");

  // Its location is still remembered at the server that the caller comes to.
  fleet.server("b").destroy(new Error("killed by the test"));
  const begunAt = performance.now();
  await fleet.startAgent("c");
  await waitFor(async () => (await fleet.connect("a")).status === 200);
  assert.ok(performance.now() - begunAt < 5_000);
});
