import assert from "node:assert/strict";
import { type Duplex, duplexPair } from "node:stream";
import { test } from "node:test";
import { createLogger } from "../../shared/runtime/logger.ts";
import type { UnixHost } from "../cluster-runtime/virtual-host.ts";
import { WaitingConnections } from "../listeners/waiting-connections.ts";
import { ClusterTunnels } from "../tunnels/registry.ts";
import type { Door } from "./authenticate.ts";
import { Entrances } from "./caller-listeners.ts";

const log = createLogger({ level: "silent", format: "json", name: "test" });

test("who asks for nothing is bounded at each door by itself: a flood at one drops nobody at another", async () => {
  const dropped: string[] = [];
  const entrances = new Entrances({
    options: {
      ...{ headerLimit: 1_024, headerTimeoutMs: 60_000, maxWaitingConnections: 2 },
      ...{ udsMode: 0o600, deleteExistingUdsFile: false, listenBacklog: 16 },
    },
    waiting: new WaitingConnections(2),
    log,
    handler: (door) => ({
      onConnect: () => assert.fail("nobody asks"),
      onRefused: () => assert.fail("nobody is refused"),
      onLeft: () => {},
      onDropped: () => dropped.push(door.cluster),
    }),
  });
  const come = (door: Door): Duplex => {
    const [near] = duplexPair();
    entrances.take(door, near);
    return near;
  };
  const [blue, green] = [doorOf("blue"), doorOf("green")];
  const quiet = [come(green), come(green)];
  const flood = [come(blue), come(blue), come(blue), come(blue)];
  assert.deepEqual(dropped, ["blue", "blue"]);
  assert.deepEqual(
    [...flood, ...quiet].map(({ destroyed }) => destroyed),
    [true, true, false, false, false, false],
  );
  entrances.drain();
  await entrances.empty(1_000);
});

function doorOf(cluster: string): UnixHost {
  return {
    kind: "unix",
    cluster,
    tunnels: new ClusterTunnels(cluster, { serverId: "s", maxAgents: 1, drainTimeoutMs: 0 }),
  };
}
