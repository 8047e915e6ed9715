import { once } from "node:events";
import { createServer as createHttpServer, type Server as HttpServer, type IncomingMessage } from "node:http";
import { type AddressInfo, createServer, isIP, isIPv6, type Server } from "node:net";
import { text } from "node:stream/consumers";
import type { Registry } from "prom-client";
import { oncePerSecond } from "../basics/timers.ts";
import { LOG_LEVELS } from "../config/common-options.ts";
import { type ListenAddress, listenError } from "../config/listen-address.ts";
import { printable } from "../outcomes.ts";
import { type Logger, logChecks } from "../runtime/logger.ts";
import type { Check } from "../runtime/run.ts";
import type { ThrottledLog } from "../runtime/throttled-log.ts";
import {
  AdminConnections,
  BODY_LIMIT,
  CONNECT_TO_ADMIN,
  CONNECT_TO_HEALTH,
  EXPECTATION,
  maxConnections,
  refusalOf,
  SingleRequest,
} from "./connections.ts";

/** Port 0 is any free port. Callers that use 0 for "off" do not start a listener. */
export interface AdminOptions extends ListenAddress {
  /** For /healthz, /livez, /ready and /readyz. */
  readonly checks: () => readonly Check[];
  readonly metrics: Registry;
  /** If given, this is a port for operators, which serves /status (JSON) and /log-level. */
  readonly status?: () => unknown;
  /** If given, it gets the JSON that is posted to /trial, and its result is the answer. */
  readonly trial?: (asked: unknown) => Promise<unknown>;
  /** If given, requests are refused whose Host is neither an address, nor `localhost`, nor one of these names. */
  readonly allowedHosts?: readonly string[];
  readonly log: Logger;
  readonly throttledLog: Pick<ThrottledLog, "write">;
}

export interface Admin {
  readonly address: AddressInfo;
  /** Stops listening and ends all connections at once. */
  close(): Promise<void>;
}

/** The header is bounded, in bytes. `answerTo` decides about Host, with a sentence. */
const PARSER = { maxHeaderSize: 8_192, requireHostHeader: false };

/**
 * Starts the health or the admin listener. It serves one request of each connection and a bounded number of
 * connections.
 */
export async function startAdmin(options: AdminOptions): Promise<Admin> {
  const http = httpServerOf(options);
  const { log, throttledLog, option } = options;
  const connections = new AdminConnections({
    max: maxConnections(),
    onConnection: (connection) => {
      const first = new SingleRequest(connection);
      http.emit("connection", first);
      first.begin();
    },
    onDropped: () => throttledLog.write("warn", { option }, "connection dropped: too many connections on this port"),
  });
  const server = createServer({ allowHalfOpen: true, noDelay: true }, (socket) => connections.add(socket));
  const address = await listen(server, options);
  server.on("error", (error) => throttledLog.write("error", { err: error, option }, "a listener failed"));
  log.debug({ address: address.address, port: address.port, option }, "listening");
  return {
    address,
    close: async () => {
      const closed = new Promise<unknown>((resolve) => server.close(resolve));
      connections.destroyAll();
      await closed;
    },
  };
}

/** The HTTP server that answers. It does not listen itself: it gets connections from `startAdmin`. */
function httpServerOf(options: AdminOptions): HttpServer {
  const { status, throttledLog, option } = options;
  const routes = routesOf(options);
  const http = createHttpServer(PARSER, async (request, response) => {
    const bodyBytes = Number(request.headers["content-length"] ?? 0);
    (request.socket as unknown as SingleRequest).onUnderstood(bodyBytes <= BODY_LIMIT ? bodyBytes : 0);
    const found = await answerTo(request, bodyBytes, routes, options.allowedHosts).catch((err: unknown): Page => {
      throttledLog.write("error", { err, option, path: printable(request.url ?? "", 100) }, "a page failed");
      return { status: 500, body: "this page failed: the log says why\n" };
    });
    const { status: code = 200, type = TEXT, allow, body } = found;
    const headers = { "content-type": type, "content-length": Buffer.byteLength(body), ...(allow && { allow }) };
    response.writeHead(code, { ...headers, connection: "close" }).end(body);
  });
  http.on("clientError", (error, connection) => {
    const answer = refusalOf(error);
    if (answer === undefined) connection.destroy();
    else (connection as unknown as SingleRequest).refuse(answer);
  });
  const connectHere = status === undefined ? CONNECT_TO_HEALTH : CONNECT_TO_ADMIN;
  http.on("connect", (_request, socket) => (socket as unknown as SingleRequest).refuse(connectHere));
  // Node's own answer would keep the connection, on which the end of the request gets a second answer.
  http.on("checkExpectation", ({ socket }) => (socket as unknown as SingleRequest).refuse(EXPECTATION));
  return http;
}

/** Status 200 and plain text, unless it says otherwise. */
interface Page {
  readonly status?: number;
  readonly type?: string;
  /** Methods of this path, where the request has another one. */
  readonly allow?: string;
  readonly body: string | Buffer;
}

type PageRoute = (query: URLSearchParams, request: IncomingMessage) => Page | Promise<Page>;

/** The routes by path, and those of a path by method. HEAD is answered as GET is. */
type PageRoutes = ReadonlyMap<string, Readonly<Record<string, PageRoute>>>;

const TEXT = "text/plain; charset=utf-8";

function routesOf({ checks, metrics, status, trial, log }: AdminOptions): PageRoutes {
  // All readers share one buffer, even if they read slowly.
  const rendered = oncePerSecond(async () => Buffer.from(await metrics.metrics()));
  // A process that answers is alive. A liveness probe that checks more would restart processes for faults of their
  // peers.
  const alive: PageRoute = () => ({ body: "ok\n" });
  const ready: PageRoute = (query) => readiness([...checks(), ...logChecks()], query.has("verbose"));
  const routes = new Map<string, Record<string, PageRoute>>([
    ["/metrics", { GET: async () => ({ type: metrics.contentType, body: await rendered() }) }],
    ["/healthz", { GET: alive }],
    ["/livez", { GET: alive }],
    ["/ready", { GET: ready }],
    ["/readyz", { GET: ready }],
  ]);
  if (status !== undefined) {
    routes.set("/status", { GET: async () => json(await status()) });
    routes.set("/log-level", {
      GET: () => ({ body: `${log.level}\n` }),
      PUT: (query) => changeLogLevel(log, query.get("level")),
    });
  }
  if (trial !== undefined) routes.set("/trial", { POST: (_query, request) => answerJson(request, trial) });
  return routes;
}

async function answerTo(
  request: IncomingMessage,
  bodyBytes: number,
  routes: PageRoutes,
  allowedHosts: readonly string[] | undefined,
): Promise<Page> {
  const { method = "", url = "", headers, httpVersion } = request;
  const { host: hosts = [] } = request.headersDistinct;
  if (hosts.length > 1 || (hosts.length === 0 && httpVersion !== "1.0")) {
    return { status: 400, body: "an HTTP/1.1 request needs one Host header, and no second one\n" };
  }
  // The absolute form names the host itself, and Host does not count (RFC 9112 §3.2.2).
  const [, authority = hosts[0], target = url] = /^http:\/\/([^/?]*)(.*)$/i.exec(url) ?? [];
  if (allowedHosts !== undefined && !isOwnHost(authority, allowedHosts)) {
    const name = printable(authority ?? "", 100);
    return { status: 421, body: `"${name}" is no IP address, not localhost and not in --admin-allowed-hosts\n` };
  }
  if (headers["transfer-encoding"] !== undefined) {
    return { status: 411, body: "a body needs its Content-Length here\n" };
  }
  if (bodyBytes > BODY_LIMIT) return { status: 413, body: `a body has at most ${BODY_LIMIT} bytes here\n` };
  const [path = "", query] = target.split("?", 2);
  const byMethod = routes.get(path);
  if (byMethod === undefined) return { status: 404, body: `this port has: ${listOf(routes)}\n` };
  const route = byMethod[method === "HEAD" ? "GET" : method];
  if (route !== undefined) return route(new URLSearchParams(query), request);
  const allow = [...Object.keys(byMethod), ...("GET" in byMethod ? ["HEAD"] : [])].join(", ");
  return { status: 405, allow, body: `this path takes: ${allow}\n` };
}

function listOf(routes: PageRoutes): string {
  return [...routes].flatMap(([path, byMethod]) => Object.keys(byMethod).map((each) => `${each} ${path}`)).join(", ");
}

/** `undefined` is `null` in JSON. */
function json(value: unknown): Page {
  return { type: "application/json; charset=utf-8", body: JSON.stringify(value ?? null) };
}

/** Answers the JSON of a request with JSON. */
async function answerJson(request: IncomingMessage, answer: (asked: unknown) => Promise<unknown>): Promise<Page> {
  // A web page can send another type to any address without asking first.
  if (!/^application\/json\s*(;|$)/i.test(request.headers["content-type"] ?? "")) {
    return { status: 415, body: "the body must be application/json\n" };
  }
  let asked: unknown;
  try {
    asked = JSON.parse(await text(request));
  } catch {
    return { status: 400, body: "the body is not JSON\n" };
  }
  return json(await answer(asked));
}

function readiness(results: readonly Check[], isVerbose: boolean): Page {
  const isReady = results.every((check) => check.ok);
  return { status: isReady ? 200 : 503, body: isVerbose || !isReady ? report(results, isReady) : "ok\n" };
}

/** Changes the level until the process ends. */
function changeLogLevel(log: Logger, level: string | null): Page {
  const known = LOG_LEVELS.find((each) => each === level);
  if (known === undefined) return { status: 400, body: `level must be one of ${LOG_LEVELS.join(", ")}\n` };
  log.info({ from: log.level, to: known }, "log level changed");
  log.level = known;
  return { body: `${known}\n` };
}

/** The layout of Kubernetes' verbose health checks, with `[!]` for faults with which the process is still ready. */
function report(checks: readonly Check[], ready: boolean): string {
  const lines = checks.map(({ name, ok, hasFaults = false, detail }) => {
    const passed = hasFaults ? `[!]${name}` : `[+]${name} ok`;
    const result = ok ? passed : `[-]${name} failed`;
    return detail === undefined || detail === "" ? result : `${result}: ${detail}`;
  });
  return [...lines, `readyz check ${ready ? "passed" : "failed"}`, ""].join("\n");
}

async function listen(server: Server, at: ListenAddress): Promise<AddressInfo> {
  const { port, host } = at;
  try {
    await once(server.listen({ port, host }), "listening");
  } catch (error) {
    throw listenError(error, at);
  }
  return server.address() as AddressInfo;
}

/**
 * Whether a request with this Host may be answered. A web page in an operator's browser can reach a loopback port if
 * the name of its site resolves to 127.0.0.1 (DNS rebinding). Host then has that name, and never an address or
 * `localhost`.
 */
export function isOwnHost(host: string | undefined, allowed: readonly string[]): boolean {
  const [, bracketed, plain] = /^(?:\[([^\]]*)\]|([^:[\]]*))(?::\d*)?$/.exec(host ?? "") ?? [];
  if (bracketed !== undefined) return isIPv6(bracketed);
  if (plain === undefined || plain === "") return false;
  if (isIP(plain) !== 0) return true;
  const name = plain.toLowerCase().replace(/\.$/, "");
  return name === "localhost" || allowed.some((each) => each.toLowerCase() === name);
}
