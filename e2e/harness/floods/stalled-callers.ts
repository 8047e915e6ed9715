import { connect as connectTcp, type Socket } from "node:net";
import { connect as connectTls } from "node:tls";
import { flooding } from "./flooding.ts";

interface Args {
  /** A unix socket, or a port with mutual TLS. */
  readonly path?: string;
  readonly port?: number;
  readonly tls?: { readonly ca: string; readonly cert: string; readonly key: string; readonly servername: string };
  /** Of a target that sends without end. */
  readonly target: string;
  /** Callers that connect in all. */
  readonly callers: number;
  /** How many of them are on their way at once. */
  readonly atOnce: number;
}

const AT_THE_LIMIT = "HTTP/1.1 503 this server is at its memory limit";

type Counts = {
  answered: number;
  /** Because the server is at its memory limit. */
  refused: number;
  /** For whatever else, with the last status line. */
  refusedOtherwise: number;
  statusLine: string;
  cut: number;
};

/** Callers that connect, get their 200 and stop reading. A caller that is cut does not reconnect. */
await flooding<Args, Counts>(
  { answered: 0, refused: 0, refusedOtherwise: 0, statusLine: "", cut: 0 },
  (args, counts) => {
    const held = new Set<Socket>();
    const one = () =>
      new Promise<void>((resolve) => {
        const { path, port, tls } = args;
        const socket =
          path !== undefined ? connectTcp({ path }) : connectTls({ host: "127.0.0.1", port: port ?? 0, ...tls });
        held.add(socket);
        socket.on("error", () => {});
        socket.on("close", () => {
          counts.cut++;
          held.delete(socket);
          resolve();
        });
        socket.once("data", (bytes) => {
          socket.pause();
          const [statusLine = ""] = bytes.toString("latin1").split("\r\n");
          if (statusLine.startsWith("HTTP/1.1 200")) counts.answered++;
          else if (statusLine.startsWith(AT_THE_LIMIT)) counts.refused++;
          else {
            counts.refusedOtherwise++;
            counts.statusLine = statusLine;
          }
          resolve();
        });
        socket.write(`CONNECT ${args.target} HTTP/1.1\r\nHost: x\r\n\r\n`);
      });
    let left = args.callers;
    for (let lane = 0; lane < args.atOnce; lane++) {
      void (async () => {
        while (left-- > 0) await one();
      })();
    }
  },
  { goesLast: false },
);
