import { type AddressInfo, createServer as createTcpServer, type Server, type Socket } from "node:net";
import { createServer as createTlsServer } from "node:tls";
import { serve } from "./child.ts";
import type { BenchTarget } from "./dial-spec.ts";
import { listen, rereadInto } from "./floors/sockets.ts";

/** A process of targets that cost as little as Node allows, so that they are not what is measured. */
const HOT = Buffer.alloc(262_144, "culvert");
const COLD = Buffer.alloc(262_144);
const ANSWER = Buffer.from("HTTP/1.1 200 Connection Established\r\n\r\n");
let sinkBytes = 0;

function countSink(length: number): void {
  sinkBytes += length;
}

function ignore(): void {}

/** Sends without end once it was asked: not every tunnel carries bytes of a target that speaks first. */
function onSource(socket: Socket): void {
  const pump = () => {
    while (!socket.destroyed && socket.write(HOT));
  };
  socket.on("error", ignore).on("drain", pump).once("data", pump).resume();
}

/**
 * Sends, once it was asked, more than a tunnel holds for a reader that has stopped. A thousand sources without end
 * would fill the memory that the kernel has for TCP (`net.ipv4.tcp_mem`), and it then drops packets of every
 * connection.
 */
function onMegabyte(socket: Socket): void {
  socket.on("error", ignore).once("data", () => {
    for (let sent = 0; sent < 1_048_576; sent += HOT.length) socket.write(HOT);
  });
}

function onSink(accepted: Socket): void {
  rereadInto(accepted, COLD, countSink).on("error", ignore);
}

function onEcho(socket: Socket): void {
  socket.on("error", ignore);
  socket.on("data", (chunk) => socket.write(chunk));
}

function onStuck(socket: Socket): void {
  socket.on("error", ignore).pause();
}

/** Answers any CONNECT by itself: the fastest there can be, so the load generator's own limit. */
function onResponder(socket: Socket): void {
  socket.on("error", ignore);
  socket.once("data", () => socket.write(ANSWER));
}

async function start(onSocket: (socket: Socket) => void, pauseOnConnect = false): Promise<number> {
  const server = createTcpServer({ noDelay: true, pauseOnConnect }, onSocket);
  await listen(server, { host: "127.0.0.1", port: 0 });
  return (server.address() as AddressInfo).port;
}

async function startResponders({ path, tls }: { path: string; tls: { ca: string; cert: string; key: string } }) {
  await listen(createTcpServer(onResponder), { path });
  const server: Server = createTlsServer({ ...tls, requestCert: true, rejectUnauthorized: true }, onResponder);
  server.on("tlsClientError", ignore);
  await listen(server, { host: "127.0.0.1", port: 0 });
  return { port: (server.address() as AddressInfo).port };
}

const methods = {
  start: async (_: object): Promise<Record<BenchTarget, number>> => ({
    source: await start(onSource),
    megabyte: await start(onMegabyte),
    sink: await start(onSink, true),
    echo: await start(onEcho),
    stuck: await start(onStuck, true),
  }),
  startResponders,
  received: (_: object) => ({ bytes: sinkBytes, atMs: performance.now() }),
};

export type TargetMethods = typeof methods;
serve(methods);
