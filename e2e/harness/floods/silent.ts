import { connect as connectTcp } from "node:net";
import { connect as connectTls } from "node:tls";
import { flooding } from "./flooding.ts";

interface Args {
  readonly ports: readonly number[];
  readonly servernames: readonly string[];
  readonly localAddress: string;
  /** Connections that are held open at once. */
  readonly connections: number;
  /** New connections in a second, at most. */
  readonly perSecond: number;
}

const TICK_MS = 20;

/** One address finishes its TLS handshakes and then says nothing; those that are cut are opened anew. */
await flooding<Args, { opened: number; secured: number; open: number }>(
  { opened: 0, secured: 0, open: 0 },
  ({ ports, servernames, localAddress, connections, perSecond }, counts) => {
    const open = (): void => {
      const index = counts.opened++;
      const port = ports[index % ports.length] as number;
      const servername = servernames[Math.floor(index / ports.length) % servernames.length] as string;
      const raw = connectTcp({ port, host: "127.0.0.1", localAddress }).on("error", () => {});
      const socket = connectTls({ socket: raw, servername, rejectUnauthorized: false }).on("error", () => {});
      counts.open++;
      socket.once("secureConnect", () => counts.secured++).resume();
      socket.on("close", () => counts.open--);
    };
    setInterval(() => {
      for (let count = (perSecond * TICK_MS) / 1_000; count > 0 && counts.open < connections; count--) open();
    }, TICK_MS);
  },
);
