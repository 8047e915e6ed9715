import { once } from "node:events";
import type { IncomingMessage } from "node:http";
import { type AddressInfo, createServer, isIP, isIPv6, type Server } from "node:net";
import type { FastifyInstance, FastifyReply, FastifyRequest } from "fastify";
import type { Registry } from "prom-client";
import { oncePerSecond } from "../basics/timers.ts";
import { LOG_LEVELS } from "../config/common-options.ts";
import { type ListenAddress, listenError } from "../config/listen-address.ts";
import { printable } from "../outcomes.ts";
import type { Logger } from "../runtime/logger.ts";
import type { Check } from "../runtime/run.ts";
import type { ThrottledLog } from "../runtime/throttled-log.ts";
import {
  AdminConnections,
  BODY_LIMIT,
  CONNECT_TO_ADMIN,
  CONNECT_TO_HEALTH,
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

/** Largest header of a request, bytes. */
const HEADER_LIMIT = 8_192;

/**
 * Starts the health or the admin listener. It serves one request of each connection and a bounded number of
 * connections. Fastify is loaded here, since an agent's first tunnel must not wait for it.
 */
export async function startAdmin(options: AdminOptions): Promise<Admin> {
  const app = await appOf(options);
  const { log, throttledLog, option } = options;
  const connections = new AdminConnections({
    max: maxConnections(),
    onConnection: (connection) => {
      const first = new SingleRequest(connection);
      app.server.emit("connection", first);
      first.begin();
    },
    onDropped: () => throttledLog.write("warn", { option }, "connection dropped: too many connections on this port"),
  });
  const server = createServer({ allowHalfOpen: true, noDelay: true }, (socket) => connections.add(socket));
  const address = await listen(server, options);
  server.on("error", (error) => throttledLog.write("error", { err: error, option }, "a listener failed"));
  log.debug({ address: address.address, port: address.port, option }, "listening");
  let closing: Promise<void> | undefined;
  const close = async (): Promise<void> => {
    const closed = new Promise<void>((resolve) => server.close(() => resolve()));
    connections.destroyAll();
    await Promise.all([closed, app.close()]);
  };
  return {
    address,
    close: () => {
      closing ??= close();
      return closing;
    },
  };
}

/**
 * No route has a JSON schema. Fastify would load its own compilers of schemas otherwise, which are more code than the
 * rest of it. Here a route with a schema fails at the start.
 */
export const WITHOUT_SCHEMAS = {
  schemaController: { compilersFactory: { buildValidator: refuseSchema, buildSerializer: refuseSchema } },
} as const;

function refuseSchema(): never {
  throw new Error("a route has a JSON schema, but this fastify instance has no compiler of schemas");
}

/** The fastify instance that answers. It does not listen itself: it gets connections from `startAdmin`. */
async function appOf(options: AdminOptions): Promise<FastifyInstance> {
  const { default: fastify } = await import("fastify");
  const app: FastifyInstance = fastify({
    ...WITHOUT_SCHEMAS,
    bodyLimit: BODY_LIMIT,
    http: { maxHeaderSize: HEADER_LIMIT },
    clientErrorHandler: (error, connection) => {
      const answer = refusalOf(error as NodeJS.ErrnoException);
      if (answer === undefined) connection.destroy();
      else (connection as unknown as SingleRequest).refuse(answer);
    },
  });
  app.server.prependListener("request", ({ headers, socket }: IncomingMessage) => {
    const bodyBytes = Number(headers["content-length"] ?? 0);
    (socket as unknown as SingleRequest).onUnderstood(bodyBytes <= BODY_LIMIT ? bodyBytes : 0);
  });
  const connectHere = options.status === undefined ? CONNECT_TO_HEALTH : CONNECT_TO_ADMIN;
  app.server.on("connect", (_request, socket) => (socket as unknown as SingleRequest).refuse(connectHere));
  app.addHook("onRequest", async (request, reply) => onRequest(request, reply, options.allowedHosts));
  addRoutes(app, options);
  await app.ready();
  return app;
}

function onRequest(request: FastifyRequest, reply: FastifyReply, allowedHosts?: readonly string[]): unknown {
  reply.header("connection", "close");
  const { host, "transfer-encoding": encoding } = request.headers;
  if (allowedHosts !== undefined && !isOwnHost(host, allowedHosts)) {
    const name = printable(host ?? "", 100);
    return text(reply.code(421), `"${name}" is no IP address, not localhost and not in --admin-allowed-hosts\n`);
  }
  if (encoding !== undefined) return text(reply.code(411), "a body needs its Content-Length here\n");
  return undefined;
}

function addRoutes(app: FastifyInstance, { checks, metrics, status, trial, log }: AdminOptions): void {
  // All readers share one buffer, even if they read slowly.
  const rendered = oncePerSecond(async () => Buffer.from(await metrics.metrics()));
  app.get("/metrics", async (_request, reply) => reply.type(metrics.contentType).send(await rendered()));
  if (status !== undefined) {
    app.get("/status", async () => status());
    addLogLevel(app, log);
  }
  if (trial !== undefined) app.post("/trial", async (request) => trial(request.body));
  // A process that answers is alive. A liveness probe that checks more would restart processes for faults of their
  // peers.
  for (const path of ["/healthz", "/livez"]) app.get(path, async (_request, reply) => text(reply, "ok\n"));
  for (const path of ["/ready", "/readyz"]) {
    app.get<{ Querystring: Record<string, unknown> }>(path, async (request, reply) => {
      const results = checks();
      const ready = results.every((check) => check.ok);
      const verbose = "verbose" in request.query || !ready;
      return text(reply.code(ready ? 200 : 503), verbose ? report(results, ready) : "ok\n");
    });
  }
}

/** `GET /log-level` returns the level, `PUT /log-level?level=debug` changes it until the process ends. */
function addLogLevel(app: FastifyInstance, log: Logger): void {
  app.get("/log-level", async (_request, reply) => text(reply, `${log.level}\n`));
  app.put<{ Querystring: Record<string, unknown> }>("/log-level", async (request, reply) => {
    const { level } = request.query;
    const known = LOG_LEVELS.find((each) => each === level);
    if (known === undefined) return text(reply.code(400), `level must be one of ${LOG_LEVELS.join(", ")}\n`);
    log.info({ from: log.level, to: known }, "log level changed");
    log.level = known;
    return text(reply, `${known}\n`);
  });
}

function text(reply: FastifyReply, body: string): FastifyReply {
  return reply.type("text/plain").send(body);
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
    return await listening(server, port, host === "" ? "::" : host);
  } catch (error) {
    const noIpv6 =
      host === "" && ["EAFNOSUPPORT", "EADDRNOTAVAIL"].includes((error as NodeJS.ErrnoException).code ?? "");
    if (!noIpv6) throw listenError(error, at);
    return await listening(server, port, "0.0.0.0").catch((again: unknown) => {
      throw listenError(again, at);
    });
  }
}

async function listening(server: Server, port: number, host: string): Promise<AddressInfo> {
  await once(server.listen({ port, host }), "listening");
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
