import type { Connection } from "./caller.ts";
import { type TcpTarget, tcpTarget } from "./targets/tcp.ts";

/**
 * A port that leads through the tunnel, one CONNECT for each connection: clients are used as they are. Node's TLS on a
 * TLS socket would do for them, too, but HTTP/2 on it may keep a process from ending.
 */
export function portThrough(connect: () => Promise<Connection>): Promise<TcpTarget> {
  return tcpTarget((client) => {
    connect().then(
      ({ socket }) => {
        client.pipe(socket).pipe(client);
        client.on("close", () => socket.destroy());
        socket.on("close", () => client.destroy());
      },
      (error) => client.destroy(error),
    );
  });
}
