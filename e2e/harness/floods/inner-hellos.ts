import { connect as connectTcp } from "node:net";
import { Duplex } from "node:stream";
import { connect as connectTls } from "node:tls";
import { frame, textFrame } from "../../../shared/link/testing/frames.ts";
import { SUBPROTOCOL, TUNNEL_PATH } from "../../../shared/wire/handshake.ts";
import { flooding } from "./flooding.ts";

interface Args {
  readonly port: number;
  readonly servername: string;
  readonly localAddresses: readonly string[];
  /** Connections of each address. */
  readonly each: number;
  /** The last message that they send. */
  readonly until: "upgrade" | "hello" | "ClientHello";
}

const AGAIN_MS = 1_000;
const UPGRADE = [
  `GET ${TUNNEL_PATH} HTTP/1.1`,
  ...["Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13"],
  `Sec-WebSocket-Key: ${Buffer.alloc(16).toString("base64")}`,
  `Sec-WebSocket-Protocol: ${SUBPROTOCOL}`,
];
const MASK = Buffer.alloc(4);
const HELLO = textFrame({ type: "hello", version: 1, inner: true }, MASK);
const CLIENT_HELLO = frame({ opcode: 2, payload: await firstFlight(), mask: MASK });
const BEHIND_UPGRADE = { upgrade: [], hello: [HELLO], ClientHello: [HELLO, CLIENT_HELLO] };

/** The first flight of a client of inner TLS. */
function firstFlight(): Promise<Buffer> {
  return new Promise((resolve) => {
    const socket = new Duplex({ read() {}, write: (chunk, _encoding, done) => done(void resolve(chunk)) });
    connectTls({ socket, minVersion: "TLSv1.3", ALPNProtocols: ["culvert-inner/1"] }).on("error", () => {});
  });
}

/** Clients without a credential that announce inner TLS, and never end it; those that are cut come again. */
await flooding<Args, { opened: number; upgraded: number; cut: number }>(
  { opened: 0, upgraded: 0, cut: 0 },
  ({ port, servername, localAddresses, each, until }, counts) => {
    const request = [...UPGRADE, `Host: ${servername}`, "", ""].join("\r\n");
    const open = (localAddress: string): void => {
      counts.opened++;
      const raw = connectTcp({ port, host: "127.0.0.1", localAddress }).on("error", () => {});
      const socket = connectTls({ socket: raw, servername, rejectUnauthorized: false }).on("error", () => {});
      socket.once("secureConnect", () => socket.write(request));
      socket.once("data", (answer) => {
        if (!String(answer).startsWith("HTTP/1.1 101")) return;
        counts.upgraded++;
        for (const message of BEHIND_UPGRADE[until]) socket.write(message);
      });
      socket.on("close", () => {
        counts.cut++;
        setTimeout(open, AGAIN_MS * (0.5 + Math.random()), localAddress);
      });
    };
    for (let count = 0; count < each; count++) for (const address of localAddresses) open(address);
  },
);
