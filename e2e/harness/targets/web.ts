import { createServer as createHttpServer, type IncomingMessage, type ServerResponse } from "node:http";
import { createSecureServer, type Http2SecureServer } from "node:http2";
import { createServer as createHttpsServer } from "node:https";
import type { Server, Socket } from "node:net";
import { type WebSocket, WebSocketServer } from "ws";
import type { CertificateAndKey } from "../../../shared/pki/certificates.ts";
import { selfSigned } from "../certificate.ts";
import { Payload } from "../payload.ts";
import { listenOnLoopback, TcpTarget } from "./tcp.ts";

/** A target over TLS; `certificate.cert` is what a client trusts. */
export interface TlsTarget extends TcpTarget {
  readonly certificate: CertificateAndKey;
}

/** `GET /bytes/N` answers N bytes of `Payload()`, POST echoes its body, everything else says hello. */
function answer(request: IncomingMessage, response: ServerResponse): void {
  const bytes = /^\/bytes\/(\d{1,12})$/.exec(request.url ?? "")?.[1];
  if (request.method === "POST") {
    request.pipe(response);
  } else if (bytes !== undefined) {
    sendBytes(response, Number(bytes));
  } else {
    response.end("hello from the target\n");
  }
}

function sendBytes(response: ServerResponse, bytes: number): void {
  const payload = new Payload();
  let offset = 0;
  response.setHeader("content-length", bytes);
  const pump = () => {
    while (offset < bytes && !response.destroyed) {
      const chunk = payload.at(offset, Math.min(65_536, bytes - offset));
      offset += chunk.length;
      if (!response.write(chunk)) return;
    }
    response.off("drain", pump);
    response.end();
  };
  response.on("drain", pump);
  pump();
}

async function start(server: Server): Promise<TcpTarget> {
  const target = new TcpTarget(server);
  server.on("connection", (socket: Socket) => target.track(socket));
  await listenOnLoopback(server);
  return target;
}

async function startTls(server: Server, certificate: CertificateAndKey): Promise<TlsTarget> {
  server.on("tlsClientError", () => {});
  return Object.defineProperty(await start(server), "certificate", { value: certificate }) as TlsTarget;
}

export function httpTarget(): Promise<TcpTarget> {
  return start(createHttpServer(answer));
}

export async function httpsTarget(): Promise<TlsTarget> {
  const certificate = await selfSigned();
  return await startTls(createHttpsServer(certificate, answer), certificate);
}

/** HTTP/2 over TLS, chosen by ALPN. */
export async function http2Target(): Promise<TlsTarget> {
  const certificate = await selfSigned();
  const server: Http2SecureServer = createSecureServer(certificate);
  server.on("sessionError", () => {});
  server.on("request", (request, response) => answer(request as never, response as never));
  return await startTls(server as unknown as Server, certificate);
}

/** Echoes WebSocket messages, text as text. */
export async function webSocketTarget(): Promise<TcpTarget> {
  const server = createHttpServer();
  const sockets = new WebSocketServer({ server, perMessageDeflate: false });
  sockets.on("connection", (socket: WebSocket) => {
    socket.on("error", () => {});
    socket.on("message", (data, isBinary) => socket.send(data, { binary: isBinary }));
  });
  return start(server);
}
