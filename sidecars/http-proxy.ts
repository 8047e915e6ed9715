import { createServer, type IncomingMessage, request, type ServerResponse } from "node:http";
import type { Duplex } from "node:stream";
import { parseTarget, type Target } from "../shared/address/target.ts";
import { printable } from "../shared/outcomes.ts";
import type { SidecarContext } from "./context.ts";
import { authorizationFor, HostedProxies } from "./hosted-proxy.ts";
import { forwardedFields } from "./http-fields.ts";
import type { HttpProxyOptions } from "./options.ts";
import { Refusal, toRefusal } from "./refusal.ts";
import { dialFor, relay, resetTunnel } from "./relay.ts";
import { type LocalProtocol, type Sidecar, type SidecarDeps, startSidecar } from "./sidecar.ts";

/** How long a client may keep a connection between two requests, ms: longer than the usual interval of scrapes. */
const KEEP_ALIVE_MS = 75_000;
const ESTABLISHED = "HTTP/1.1 200 Connection Established\r\n\r\n";

/** `culvert http-proxy`: CONNECT, and requests for whole `http://` URLs (RFC 9112 §3.2.2 and §3.2.3). */
export async function startHttpProxy(options: HttpProxyOptions, deps: SidecarDeps): Promise<Sidecar> {
  const hosted = new HostedProxies(options);
  return startSidecar(options, deps, (context) => httpProxy({ context, hosted }));
}

interface HttpProxyContext {
  readonly context: SidecarContext;
  readonly hosted: HostedProxies;
}

function httpProxy(proxy: HttpProxyContext): LocalProtocol {
  const server = createServer({
    noDelay: true,
    headersTimeout: proxy.context.options.handshakeTimeoutMs,
    requestTimeout: 0, // bodies may be as long as they like
    keepAliveTimeout: KEEP_ALIVE_MS,
  });
  server.on("connect", (asked, client, head) => void serveConnect(asked, client, head, proxy));
  for (const event of ["request", "checkContinue"] as const) {
    server.on(event, (asked, answer) => void serveRequest(asked, answer, proxy));
  }
  return { server, closeIdle: () => server.closeIdleConnections(), close: () => server.closeAllConnections() };
}

/** One CONNECT, from its request to its last byte. */
async function serveConnect(asked: IncomingMessage, client: Duplex, head: Buffer, proxy: HttpProxyContext) {
  const { context, hosted } = proxy;
  client.on("error", ignore);
  try {
    if (head.length > 0) client.unshift(head);
    const target = targetOf(asked.url ?? "");
    const through = hosted.find("https", target);
    const stream = await dialFor(client, target, context, (dialer, signal) =>
      through === undefined ? dialer.dial(target, signal) : hosted.tunnel(through, target, dialer, signal),
    );
    client.write(ESTABLISHED);
    await relay(client, stream, target, context);
  } catch (error) {
    const { status, message, proxyStatus } = toRefusal(error);
    const body = `${printable(message, 400)}\n`;
    const fields = `Proxy-Status: ${proxyStatus}\r\nContent-Type: text/plain\r\nContent-Length: ${body.length}`;
    client.end(`HTTP/1.1 ${status} ${printable(message)}\r\n${fields}\r\nConnection: close\r\n\r\n${body}`);
  }
}

/** One request for a whole URL. Its bodies, trailers and 100 (Continue) stream both ways. */
async function serveRequest(asked: IncomingMessage, answer: ServerResponse, proxy: HttpProxyContext): Promise<void> {
  const { context, hosted } = proxy;
  try {
    const { target, authority, path } = wholeUrl(asked.url ?? "");
    const through = hosted.find("http", target);
    const stream = await dialFor(answer, target, context, (dialer, signal) =>
      through === undefined ? dialer.dial(target, signal) : hosted.connect(through, dialer, signal),
    );
    const headers = {
      ...forwardedFields(asked),
      ...(through && authorizationFor(through)),
      ...(isChunked(asked) && { "transfer-encoding": "chunked" }),
      host: authority,
      connection: "close",
    };
    const wanted = through === undefined ? path : `http://${authority}${path}`;
    forward(asked, answer, stream, { method: asked.method, path: wanted, headers });
  } catch (error) {
    refuse(answer, toRefusal(error));
  }
}

function forward(asked: IncomingMessage, answer: ServerResponse, stream: Duplex, options: object): void {
  const onward = request({ ...options, createConnection: () => stream });
  onward.on("error", ({ message }) => {
    if (answer.writableEnded) return; // the client has the whole answer
    if (answer.headersSent) answer.destroy();
    else refuse(answer, new Refusal(502, "connection_terminated", `the target ended the connection: ${message}`));
  });
  onward.on("continue", () => answer.writeContinue());
  onward.on("response", (response) => {
    answer.writeHead(response.statusCode ?? 502, printable(response.statusMessage ?? ""), forwardedFields(response));
    response.on("data", (chunk: Buffer) => {
      if (!answer.write(chunk)) response.pause();
    });
    answer.on("drain", () => response.resume());
    response.on("end", () => {
      answer.addTrailers(response.trailers as Record<string, string>);
      answer.end();
      if (!onward.writableFinished) resetTunnel(stream); // it has answered before the end of the request
    });
    response.on("error", () => answer.destroy()); // it ended before its end
    answer.flushHeaders(); // the body may come much later
  });
  answer.on("close", () => {
    if (!answer.writableFinished) resetTunnel(stream);
  });
  if (!hasBody(asked)) onward.end();
  else {
    onward.flushHeaders(); // the body may come much later, or after 100 (Continue)
    const send = (chunk: Buffer): void => {
      if (!onward.write(chunk)) asked.pause();
    };
    asked.on("data", send);
    onward.on("close", () => asked.off("data", send).resume()); // the rest is dropped
    onward.on("drain", () => asked.resume());
    asked.on("end", () => {
      onward.addTrailers(asked.trailers as Record<string, string>);
      onward.end();
    });
  }
}

function refuse(answer: ServerResponse, { status, message, proxyStatus }: Refusal): void {
  if (answer.headersSent || answer.destroyed) return;
  answer.writeHead(status, printable(message), { "proxy-status": proxyStatus, "content-type": "text/plain" });
  answer.end(`${message}\n`);
}

/** Of a request that a client of a proxy sends. The path is passed on as it is written. */
function wholeUrl(url: string): { target: Target; authority: string; path: string } {
  const [, authority, rest = ""] = /^http:\/\/(?:[^/?#@]*@)?([^/?#]*)([^#]*)/i.exec(url) ?? [];
  if (authority === undefined) {
    const sentence = "this is an HTTP proxy: send it CONNECT, or requests for whole http:// URLs";
    throw new Refusal(400, "http_request_error", sentence);
  }
  const target = targetOf(/:\d+$/.test(authority) ? authority : `${authority.replace(/:$/, "")}:80`);
  return { target, authority, path: rest.startsWith("/") ? rest : `/${rest}` };
}

function targetOf(authority: string): Target {
  try {
    return parseTarget(authority);
  } catch (error) {
    throw new Refusal(400, "http_request_error", (error as Error).message);
  }
}

function isChunked({ headers }: IncomingMessage): boolean {
  return headers["transfer-encoding"] !== undefined;
}

function hasBody(asked: IncomingMessage): boolean {
  return isChunked(asked) || Number(asked.headers["content-length"] ?? 0) > 0;
}

function ignore(): void {}
