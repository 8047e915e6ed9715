import assert from "node:assert/strict";
import { Socket } from "node:net";
import { test } from "node:test";
import { IncomingConnection } from "../../shared/listen/incoming-connection.ts";
import { createLogger } from "../../shared/runtime/logger.ts";
import { ThrottledLog } from "../../shared/runtime/throttled-log.ts";
import type { UnixHost } from "../cluster-runtime/virtual-host.ts";
import { WaitingConnections } from "../listeners/port-connections.ts";
import { ClusterTunnels } from "../tunnels/cluster-tunnels.ts";
import type { CallerHost } from "./authenticate.ts";
import { CallerListeners } from "./caller-listeners.ts";

const log = createLogger({ level: "silent", format: "json", name: "test" });

test("each unix socket has its own bound of connections without a request: a flood of one drops none of another", async () => {
  let dropped = 0;
  const listeners = new CallerListeners({
    options: {
      ...{ headerLimit: 1_024, headerTimeoutMs: 60_000, maxWaitingConnections: 2 },
      ...{ udsMode: 0o600, deleteExistingUdsFile: false, listenBacklog: 16 },
    },
    ...{ waiting: new WaitingConnections(2), log, throttledLog: new ThrottledLog(log) },
    metrics: { waitingDropped: () => dropped++ },
    connect: undefined as never, // there is no request
  });
  const connectTo = (host: CallerHost): Socket => {
    const socket = new Socket();
    const connection = new IncomingConnection(socket);
    connection.handedOn(socket);
    listeners.take(host, connection);
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
