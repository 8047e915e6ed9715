import { readFileSync } from "node:fs";
import { createServer as createHttpServer } from "node:http";
import { type AddressInfo, connect, createServer, type Socket } from "node:net";
import { createServer as createTlsServer, type TLSSocket } from "node:tls";
import { type WebSocket, WebSocketServer } from "ws";
import { SUBPROTOCOL } from "../../shared/wire/handshake.ts";
import { serverFiles } from "./pki-files.ts";
import type { AgentsWorld } from "./scripted-agent.ts";
import { listenOnLoopback } from "./targets/tcp.ts";

/** The behaviour of a scenario towards an agent's connections; one of the three is enough. */
export interface RawServerScript {
  /** How many connections are treated so; those behind them are led to the world's real server. */
  readonly times: number;
  /** The TCP connection; TLS is not done then. */
  readonly onTcp?: (socket: Socket) => void;
  /** After the handshake; no HTTP is read then. */
  readonly onTls?: (socket: TLSSocket) => void;
  /** After the upgrade. */
  readonly onUpgrade?: (ws: WebSocket, socket: Socket) => void;
}

/** A server that a scenario plays, with the certificate that the world's agents trust. */
export class RawServer implements AsyncDisposable {
  readonly port: number;
  /** Connections that agents have made. */
  accepted = 0;
  readonly #close: () => Promise<void>;

  constructor(port: number, close: () => Promise<void>) {
    this.port = port;
    this.#close = close;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.#close();
  }
}

export async function rawServer(world: AgentsWorld, script: RawServerScript): Promise<RawServer> {
  const takeTls = tlsSide(world, script);
  const sockets = new Set<Socket>();
  const front = createServer((socket) => {
    server.accepted++;
    track(socket);
    if (server.accepted > script.times) forward(socket);
    else if (script.onTcp) script.onTcp(socket);
    else takeTls(socket);
  });
  const track = (socket: Socket) => {
    sockets.add(socket);
    socket.on("error", () => {}).on("close", () => sockets.delete(socket));
  };
  const forward = (socket: Socket) => {
    const onward = connect({ port: world.server.addresses.agents?.port ?? 0, host: "127.0.0.1" });
    track(onward);
    socket.pipe(onward).pipe(socket);
  };
  await listenOnLoopback(front);
  const server = new RawServer((front.address() as AddressInfo).port, async () => {
    for (const socket of sockets) socket.destroy();
    await new Promise((resolve) => front.close(resolve));
  });
  return server;
}

const WELCOME = {
  ...{ type: "welcome", version: 1, serverId: "raw", link: "raw/1", key: "k".repeat(43), graceMs: 0 },
  ...{ keepaliveMs: 20_000, initialWindow: 65_536 },
} as const;

/** The welcome of a raw server. */
export function welcomeText(change: Readonly<Record<string, unknown>> = {}): string {
  return JSON.stringify({ ...WELCOME, ...change });
}

/** A server that welcomes its first agent; the scenario sends payload, and reads what comes. */
export async function welcomingServer(world: AgentsWorld) {
  const payload: Buffer[] = [];
  let agent: WebSocket | undefined;
  const onUpgrade = (ws: WebSocket) => {
    agent = ws;
    ws.once("message", () => ws.send(welcomeText()));
    ws.on("message", (data: Buffer, isBinary) => isBinary && payload.push(data));
  };
  const server = await rawServer(world, { times: 1, onUpgrade });
  return {
    server,
    payload,
    send: (bytes: Buffer) => agent?.send(bytes),
    [Symbol.asyncDispose]: () => server[Symbol.asyncDispose](),
  };
}

/** TLS, then HTTP and the upgrade, unless the script takes over before. */
function tlsSide(world: AgentsWorld, script: RawServerScript): (socket: Socket) => void {
  const { clusterCert, clusterKey } = serverFiles(world.dir.path);
  const tls = createTlsServer({ cert: readFileSync(clusterCert), key: readFileSync(clusterKey) });
  const http = createHttpServer();
  const upgrades = new WebSocketServer({ server: http, perMessageDeflate: false, handleProtocols: () => SUBPROTOCOL });
  tls.on("tlsClientError", () => {});
  http.on("clientError", (_error, socket) => socket.destroy());
  upgrades.on("connection", (ws: WebSocket, request) => {
    ws.on("error", () => {});
    script.onUpgrade?.(ws, request.socket);
  });
  tls.on("secureConnection", (socket) => {
    socket.on("error", () => {});
    if (script.onTls) script.onTls(socket);
    else http.emit("connection", socket);
  });
  return (socket) => void tls.emit("connection", socket);
}
