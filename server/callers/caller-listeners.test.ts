import assert from "node:assert/strict";
import { Socket } from "node:net";
import { test } from "node:test";
import { IncomingConnection } from "../../shared/listen/incoming-connection.ts";
import type { UnixHost } from "../cluster-runtime/virtual-host.ts";
import { WaitingConnections } from "../listeners/port-connections.ts";
import { ServerMetrics } from "../metrics/server-metrics.ts";
import { ClusterTunnels } from "../tunnels/cluster-tunnels.ts";
import { contextOf } from "../tunnels/testing/context.ts";
import type { CallerHost } from "./authenticate.ts";
import { CallerListeners } from "./caller-listeners.ts";

test("each unix socket has its own bound of connections without a request: a flood of one drops none of another", async () => {
  let dropped = 0;
  const metrics = Object.assign(new ServerMetrics({ processMetrics: false }), { waitingDropped: () => dropped++ });
  const options = { headerLimit: 1_024, headerTimeoutMs: 60_000, maxWaitingConnections: 2 };
  const listeners = new CallerListeners(new WaitingConnections(2), contextOf(options, { metrics }));
  const connectTo = (host: CallerHost): Socket => {
    const socket = new Socket();
    const connection = new IncomingConnection(socket);
    connection.handedOn(socket);
    listeners.accept(host, connection);
    return socket;
  };
  const [blue, green] = [hostOf("blue"), hostOf("green")];
  const quiet = [connectTo(green), connectTo(green)];
  const flood = [connectTo(blue), connectTo(blue), connectTo(blue), connectTo(blue)];
  assert.equal(dropped, 2);
  assert.deepEqual(
    [...flood, ...quiet].map(({ destroyed }) => destroyed),
    [true, true, false, false, false, false],
  );
  listeners.drain();
  await listeners.empty(1_000);
});

function hostOf(cluster: string): UnixHost {
  return {
    kind: "unix",
    tunnels: new ClusterTunnels(cluster, { serverId: "s", maxAgents: 1, drainTimeoutMs: 0 }),
  };
}
