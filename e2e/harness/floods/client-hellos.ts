import { connect, type Socket } from "node:net";
import { nodeHello } from "../../../shared/listen/testing/client-hello.ts";
import { flooding } from "./flooding.ts";

interface Args {
  readonly ports: readonly number[];
  readonly servernames: readonly string[];
  readonly localAddress: string;
  /** Connections that are held open at once. */
  readonly connections: number;
  /** New connections in a second, at most. */
  readonly perSecond: number;
  /** Half of each ClientHello is all that they send. */
  readonly partial?: boolean;
}

const TICK_MS = 10;

/** One address sends whole ClientHellos and never goes on: each costs the server the first half of a handshake. */
await flooding<Args, { opened: number; open: number }>({ opened: 0, open: 0 }, async (args, counts) => {
  const { ports, servernames, localAddress, connections, perSecond, partial = false } = args;
  const hellos = await Promise.all(servernames.map((servername) => nodeHello({ servername })));
  const open = (): void => {
    const index = counts.opened++;
    const port = ports[index % ports.length] as number;
    const socket: Socket = connect({ port, host: "127.0.0.1", localAddress });
    counts.open++;
    socket.on("error", () => {}).resume();
    socket.on("close", () => counts.open--);
    const hello = hellos[index % hellos.length] as Buffer;
    socket.write(partial ? hello.subarray(0, hello.length / 2) : hello);
  };
  setInterval(() => {
    for (let count = (perSecond * TICK_MS) / 1_000; count > 0 && counts.open < connections; count--) open();
  }, TICK_MS);
});
