import { once } from "node:events";
import { connect } from "node:net";
import { Duplex } from "node:stream";
import { createWebSocketStream, WebSocket, WebSocketServer } from "ws";
import { type GoListener, type Role, spawnDialler, spawnOnPipe } from "./go-peer.ts";

/** A way to reach a Go session, and how much it can carry in the time that a test may take. */
export interface Carrier {
  readonly name: string;
  readonly bulkBytes: number;
  open(go: GoListener, goRole: Role): Promise<Duplex>;
}

const MIB = 1024 * 1024;
/** Each piece is a system call. */
const SPLIT_BYTES = (process.env["CI"] === "true" ? 32 : 8) * MIB;

export const CARRIERS: readonly Carrier[] = [
  { name: "a pipe", bulkBytes: 32 * MIB, open: (_go, role) => spawnOnPipe(role) },
  { name: "TCP", bulkBytes: 32 * MIB, open: tcp },
  { name: "a WebSocket", bulkBytes: 32 * MIB, open: webSocket },
  { name: "a WebSocket that Go dialled", bulkBytes: 32 * MIB, open: webSocketFromGo },
  { name: "TCP in random splits", bulkBytes: SPLIT_BYTES, open: async (go, role) => splitting(await tcp(go, role)) },
  {
    name: "a WebSocket in random splits",
    bulkBytes: SPLIT_BYTES,
    open: async (go, role) => splitting(await webSocket(go, role)),
  },
];

export async function tcp(go: GoListener, role: Role): Promise<Duplex> {
  const socket = connect({ host: "127.0.0.1", port: go.tcpPort[role], noDelay: true });
  await once(socket, "connect");
  return socket;
}

async function webSocket(go: GoListener, role: Role): Promise<Duplex> {
  const ws = new WebSocket(`ws://127.0.0.1:${go.webSocketPort}/${role}`, { perMessageDeflate: false });
  await once(ws, "open");
  return createWebSocketStream(ws);
}

async function webSocketFromGo(_go: GoListener, role: Role): Promise<Duplex> {
  const listener = new WebSocketServer({ host: "127.0.0.1", port: 0 });
  await once(listener, "listening");
  const { port } = listener.address() as { port: number };
  await spawnDialler(role, `ws://127.0.0.1:${port}/`);
  const [ws] = (await once(listener, "connection")) as [WebSocket];
  listener.close();
  return createWebSocketStream(ws);
}

/** The same bytes in pieces of random size, each a write (and a message) of its own, in both directions. */
export function splitting(inner: Duplex): Duplex {
  const writePieces = (bytes: Buffer, done: () => void) => {
    const piece = bytes.subarray(0, randomSize());
    inner.write(piece, () => (piece.length < bytes.length ? writePieces(bytes.subarray(piece.length), done) : done()));
  };
  const outer = new Duplex({
    write: (chunk: Buffer, _encoding, done) => writePieces(chunk, done),
    final: (done) => inner.end(done),
    read: () => inner.resume(),
    destroy: (error, done) => {
      inner.destroy();
      done(error);
    },
  });
  inner.on("data", (chunk: Buffer) => {
    for (let at = 0; at < chunk.length; ) {
      const size = randomSize();
      if (!outer.push(chunk.subarray(at, at + size))) inner.pause();
      at += size;
    }
  });
  inner.on("end", () => outer.push(null));
  inner.on("error", (error) => outer.destroy(error));
  inner.on("close", () => outer.destroy());
  return outer;
}

/** Half of them a few bytes, so that headers are cut; the others up to 8 KiB. */
function randomSize(): number {
  return 1 + Math.floor(Math.random() * (Math.random() < 0.5 ? 16 : 8192));
}
