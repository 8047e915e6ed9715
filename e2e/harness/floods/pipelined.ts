import { connect as connectTcp, type Socket } from "node:net";
import { connect as connectTls } from "node:tls";
import { flooding } from "./flooding.ts";

interface Args {
  /** A TCP port, or the path of a unix socket. */
  readonly port?: number;
  readonly path?: string;
  /** Absent: no TLS. */
  readonly servername?: string;
  readonly connections: number;
  readonly request: string;
  /** One write of this number of bytes on each connection, which comes again when it has its first answer. */
  readonly onceBytes?: number;
}

/** Requests in one write: as many as fit into 256 KiB. */
const WRITE_BYTES = 256 * 1024;
const AGAIN_MS = 5;

/**
 * Clients without a credential that send the same request again and again and read no answer, and come again when they
 * are cut.
 */
await flooding<Args, { opened: number; bytes: number }>({ opened: 0, bytes: 0 }, async (args, counts) => {
  const { port, path, servername, connections, request, onceBytes } = args;
  const many = Buffer.from(request.repeat(Math.ceil((onceBytes ?? WRITE_BYTES) / request.length)));
  const open = (): void => {
    const raw: Socket = path === undefined ? connectTcp({ port: port ?? 0, host: "127.0.0.1" }) : connectTcp({ path });
    raw.on("error", () => {});
    const socket = servername === undefined ? raw : connectTls({ socket: raw, servername, rejectUnauthorized: false });
    counts.opened++;
    const write = (): void => {
      if (socket.destroyed) return;
      counts.bytes += many.length;
      socket.write(many, (error) => {
        if (!error && onceBytes === undefined) setImmediate(write);
      });
    };
    socket.on("error", () => {}).on("close", () => setTimeout(open, AGAIN_MS));
    if (onceBytes !== undefined) socket.once("data", () => socket.destroy());
    socket.once(servername === undefined ? "connect" : "secureConnect", write);
  };
  for (let index = 0; index < connections; index++) open();
});
