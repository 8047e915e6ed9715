import { once } from "node:events";
import type net from "node:net";
import type { TestContext } from "node:test";

/** Listens on loopback until the test is over, which ends the connections as well. Returns the port. */
export async function listenFor(t: TestContext, server: net.Server): Promise<number> {
  const sockets = new Set<net.Socket>();
  server.on("connection", (socket: net.Socket) => sockets.add(socket.on("error", () => {})));
  await once(server.listen(0, "127.0.0.1"), "listening");
  t.after(() => {
    for (const socket of sockets) socket.destroy();
    server.close();
  });
  return (server.address() as net.AddressInfo).port;
}
