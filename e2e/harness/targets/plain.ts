import { createHash, type Hash } from "node:crypto";
import type { Socket } from "node:net";
import { Payload } from "../payload.ts";
import { peerEnd } from "../peer-end.ts";
import { type TcpTarget, tcpTarget } from "./tcp.ts";

const CHUNK = 65_536;

/** Sends back what it gets, and its FIN after the peer's. */
export function echoTarget(): Promise<TcpTarget> {
  return tcpTarget((socket) => socket.pipe(socket));
}

/** Speaks before it is spoken to (SSH, MySQL, SMTP), then echoes. */
export function bannerTarget(banner = "220 culvert banner\r\n"): Promise<TcpTarget> {
  return tcpTarget((socket) => {
    socket.write(banner);
    socket.pipe(socket);
  });
}

/** Says nothing until the peer's FIN, then sends N bytes and its own FIN (`nc -N`, rsh, some RPC). */
export function halfCloseTarget({ bytes = 100_000_000, seed = 0 } = {}): Promise<TcpTarget> {
  return tcpTarget((socket) => {
    socket.resume();
    socket.on("end", () => sendPayload(socket, new Payload(seed), bytes));
  });
}

/** Sends N bytes of `Payload()` and FIN, or bytes without end; stops while the peer does not read. */
export function sourceTarget({ bytes = Number.POSITIVE_INFINITY } = {}): Promise<TcpTarget> {
  return tcpTarget((socket) => {
    socket.resume();
    socket.on("end", () => socket.end());
    sendPayload(socket, new Payload(), bytes);
  });
}

/** Resets the connection once this number of bytes has come. */
export function resettingTarget(bytes: number): Promise<TcpTarget> {
  return tcpTarget((socket) => {
    let received = 0;
    socket.on("data", (chunk: Buffer) => {
      received += chunk.length;
      if (received >= bytes) socket.resetAndDestroy();
    });
    // A CONNECT that was given up, for example because it was tried on another agent.
    socket.on("end", () => socket.end());
  });
}

/** Bytes that a sink took from one connection. */
class SinkConnection {
  readonly #hash: Hash = createHash("sha256");
  readonly socket: Socket;
  bytes = 0;
  /** How it ended: the peer's FIN, or an error code such as ECONNRESET. */
  readonly ended: Promise<string>;

  constructor(socket: Socket, onData: (length: number) => void) {
    this.socket = socket;
    socket.on("data", (chunk: Buffer) => {
      this.bytes += chunk.length;
      this.#hash.update(chunk);
      onData(chunk.length);
    });
    this.ended = peerEnd(socket);
    socket.on("end", () => socket.end());
  }

  /** SHA-256 (hex) so far. */
  sha256(): string {
    return this.#hash.copy().digest("hex");
  }
}

/** Takes everything, counts and digests it; answers FIN with FIN. */
interface SinkTarget extends TcpTarget {
  readonly connections: readonly SinkConnection[];
  /** Bytes of all connections. */
  readonly bytes: number;
}

export async function sinkTarget(): Promise<SinkTarget> {
  const connections: SinkConnection[] = [];
  let bytes = 0;
  const count = (length: number) => {
    bytes += length;
  };
  const target = await tcpTarget((socket) => connections.push(new SinkConnection(socket, count)));
  return Object.defineProperties(target, {
    connections: { value: connections },
    bytes: { get: () => bytes },
  }) as SinkTarget;
}

/** Writes `bytes` of the payload at the pace of the reader, then FIN. */
export function sendPayload(socket: Socket, payload: Payload, bytes: number, onSent = () => void socket.end()): void {
  let offset = 0;
  const pump = () => {
    while (offset < bytes) {
      if (socket.destroyed) return;
      const chunk = payload.at(offset, Math.min(CHUNK, bytes - offset));
      offset += chunk.length;
      if (!socket.write(chunk)) return;
    }
    socket.off("drain", pump);
    onSent();
  };
  socket.on("drain", pump);
  pump();
}
