import { once } from "node:events";
import { type AddressInfo, connect, createServer, type Socket } from "node:net";
import type { TestServer } from "../../testing/server.ts";

/** The way to the peers' port of a server, whose `--peer-address` it is. */
export async function peerPath() {
  const sockets = new Set<Socket>();
  let port: number | undefined;
  const listener = createServer((near) => {
    keep(near);
    if (port === undefined) return; // nothing comes back, as behind a partition
    const far = keep(connect({ port, host: "127.0.0.1" }));
    near.on("close", () => far.destroy());
    far.on("close", () => near.resetAndDestroy());
    near.pipe(far).pipe(near);
  });
  const keep = (socket: Socket): Socket => {
    sockets.add(socket.on("error", () => {}).once("close", () => sockets.delete(socket)));
    return socket;
  };
  listener.listen(0, "127.0.0.1");
  await once(listener, "listening");
  const cut = (): void => {
    for (const socket of sockets) socket.resetAndDestroy();
  };
  return {
    peerAddress: `127.0.0.1:${(listener.address() as AddressInfo).port}`,
    leadTo: (server: TestServer) => {
      port = server.addresses.peers?.port;
    },
    cut,
    /** As when the network drops everything. */
    silence: () => {
      port = undefined;
      cut();
    },
    /** As when the process was killed. */
    refuse: () => {
      listener.close();
      cut();
    },
    [Symbol.dispose]: () => {
      listener.close();
      cut();
    },
  };
}
