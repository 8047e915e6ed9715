import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { Duplex } from "node:stream";
import { parseTarget, type Target } from "../shared/address/target.ts";
import { forward, hasUnknownCoding, NO_PROXY_REQUEST, UNKNOWN_CODING, wholeUrl } from "../shared/http/forward.ts";
import { printable } from "../shared/outcomes.ts";
import type { SidecarContext } from "./context.ts";
import { authorizationFor, HostedProxies } from "./hosted-proxy.ts";
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
    const url = wholeUrl(asked.url ?? "");
    if (url === undefined) throw new Refusal(400, "http_request_error", NO_PROXY_REQUEST);
    if (hasUnknownCoding(asked)) throw new Refusal(501, "http_request_error", UNKNOWN_CODING);
    const { authority, path } = url;
    const target = targetOf(url.target);
    const through = hosted.find("http", target);
    const stream = await dialFor(answer, target, context, (dialer, signal) =>
      through === undefined ? dialer.dial(target, signal) : hosted.connect(through, dialer, signal),
    );
    forward(asked, answer, {
      connection: stream,
      path: through === undefined ? path : `http://${authority}${path}`,
      authority,
      ...(through && { fields: authorizationFor(through) }),
      reset: () => resetTunnel(stream),
      refuse: (sentence) => refuse(answer, new Refusal(502, "connection_terminated", sentence)),
    });
  } catch (error) {
    refuse(answer, toRefusal(error));
  }
}

function refuse(answer: ServerResponse, { status, message, proxyStatus }: Refusal): void {
  if (answer.headersSent || answer.destroyed) return;
  answer.writeHead(status, printable(message), { "proxy-status": proxyStatus, "content-type": "text/plain" });
  answer.end(`${message}\n`);
}

function targetOf(authority: string): Target {
  try {
    return parseTarget(authority);
  } catch (error) {
    throw new Refusal(400, "http_request_error", (error as Error).message);
  }
}

function ignore(): void {}
