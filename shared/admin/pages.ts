import type { IncomingMessage, ServerResponse } from "node:http";
import { isIP, isIPv6 } from "node:net";
import type { FastifyInstance, FastifyReply, FastifyRequest, FastifySchemaCompiler, RouteHandlerMethod } from "fastify";
import type { Registry } from "prom-client";
import * as z from "zod";
import { oncePerSecond } from "../basics/timers.ts";
import { LOG_LEVELS } from "../config/common-options.ts";
import type { ListenAddress } from "../config/listen-address.ts";
import { FASTIFY_OPTIONS } from "../http/fastify-options.ts";
import { type FirstRequest, firstRequestOf } from "../listen/first-request.ts";
import { printable } from "../outcomes.ts";
import type { Check } from "../runtime/check.ts";
import { type Logger, logChecks } from "../runtime/logger.ts";
import type { ThrottledLog } from "../runtime/throttled-log.ts";
import { BODY_LIMIT, CONNECT_TO_ADMIN, CONNECT_TO_HEALTH, EXPECTATION, readBody, refusalOf } from "./connections.ts";

export interface PageOptions extends Pick<ListenAddress, "option"> {
  /** For /healthz, /livez, /ready and /readyz. */
  readonly checks: () => readonly Check[];
  readonly metrics: Registry;
  /** If given, this is a port for operators, which serves /status (JSON) and /log-level. */
  readonly status?: () => unknown;
  /** If given, it gets the JSON that is posted to /trial, and its result is the answer. */
  readonly trial?: (asked: unknown) => Promise<unknown>;
  /** If given, requests are refused whose Host is neither an address, nor `localhost`, nor one of these names. */
  readonly allowedHosts?: readonly string[];
  /** If given, it is called with the first request under /ui/, and answers all of them. */
  readonly ui?: () => Promise<Ui>;
  readonly log: Logger;
  readonly throttledLog: Pick<ThrottledLog, "write">;
}

/** Answers the requests under /ui/, whose Host was verified. */
export interface Ui {
  file(request: IncomingMessage, response: ServerResponse): void;
  /** A stream of events, for as long as its reader takes them. */
  events(request: IncomingMessage, response: ServerResponse): void;
  /** The facts that other servers show of this one, as JSON. */
  summary(): unknown;
  /** `asked`: the JSON that was posted. */
  check(asked: unknown, response: ServerResponse): void;
}

const TEXT = "text/plain; charset=utf-8";
const JSON_TYPE = /^application\/json\s*(;|$)/i;

/** A request that no page answers, with the status and the sentence for it. */
class PageRefusal extends Error {
  readonly statusCode: number;
  /** Methods of this path, where the request has another one. */
  readonly allow: string | undefined;

  constructor(statusCode: number, sentence: string, allow?: string) {
    super(sentence);
    this.statusCode = statusCode;
    this.allow = allow;
  }
}

/**
 * The pages of a health or admin port. The instance does not listen itself: its server gets connections from
 * `startAdmin`. Fastify is loaded here, since an agent's first tunnel must not wait for it.
 */
export async function pagesOf(options: PageOptions): Promise<FastifyInstance> {
  const { default: fastify } = await import("fastify");
  const pages = fastify({
    ...FASTIFY_OPTIONS,
    // `checkRequest` decides about Host, with a sentence.
    http: { maxHeaderSize: 8_192, requireHostHeader: false },
    // Paths are compared as they are written: none is malformed then, and each request passes the hook.
    rewriteUrl: ({ url = "" }) => {
      const { path, query } = splitUrl(url);
      return `${path.startsWith("/") ? "" : "/"}${path.replaceAll("%", "%25")}${query}`;
    },
    clientErrorHandler: (error, connection) => {
      const answer = refusalOf(error as NodeJS.ErrnoException);
      if (answer === undefined) connection.destroy();
      else (connection as unknown as FirstRequest).refuse(answer);
    },
  });
  answerOnSocket(pages, options);
  const logFailure = (err: unknown, url: string) =>
    options.throttledLog.write("error", { err, option: options.option, path: printable(url, 100) }, "a page failed");
  pages.addHook("onRequest", async (request, reply) => {
    reply.header("connection", "close");
    checkRequest(request, options.allowedHosts);
  });
  pages.setErrorHandler((error: Error, request, reply) => {
    if (!isRefusal(error)) logFailure(error, request.originalUrl);
    return answerError(error, reply);
  });
  // The one body that is read is that of /trial, which verifies its type.
  pages.removeAllContentTypeParsers();
  pages.addContentTypeParser("*", { parseAs: "string" }, (_request, body, done) => done(null, body));
  const routes = routesOf(options);
  pages.setValidatorCompiler(validatorOf);
  for (const [method, url, handler, querystring] of routes) {
    pages.route({ method, url, handler, ...(querystring && { schema: { querystring } }) });
  }
  pages.setNotFoundHandler(({ originalUrl }) => {
    throw notFound(splitUrl(originalUrl).path, routes);
  });
  await pages.ready();
  return pages;
}

/** Answers bytes on their connection that never become a request of fastify's. */
function answerOnSocket({ server }: FastifyInstance, { status }: PageOptions): void {
  server.prependListener("request", (request: IncomingMessage) => {
    const bodyBytes = Number(request.headers["content-length"] ?? 0);
    readBody(firstRequestOf(request), bodyBytes <= BODY_LIMIT ? bodyBytes : 0);
  });
  const connectHere = status === undefined ? CONNECT_TO_HEALTH : CONNECT_TO_ADMIN;
  server.on("connect", (request) => firstRequestOf(request).refuse(connectHere));
  // Node's own answer would keep the connection, on which the end of the request gets a second answer.
  server.on("checkExpectation", (request) => firstRequestOf(request).refuse(EXPECTATION));
}

/** Throws a `PageRefusal`. It is asked for every request, also for one that has no page. */
function checkRequest({ raw, originalUrl }: FastifyRequest, allowedHosts: readonly string[] | undefined): void {
  const { host: hosts = [] } = raw.headersDistinct;
  if (hosts.length > 1 || (hosts.length === 0 && raw.httpVersion !== "1.0")) {
    throw new PageRefusal(400, "an HTTP/1.1 request needs one Host header, and no second one");
  }
  const { authority = hosts[0] } = splitUrl(originalUrl);
  if (allowedHosts !== undefined && !isOwnHost(authority, allowedHosts)) {
    const name = printable(authority ?? "", 100);
    throw new PageRefusal(421, `"${name}" is no IP address, not localhost and not in --admin-allowed-hosts`);
  }
  if (raw.headers["transfer-encoding"] !== undefined) {
    throw new PageRefusal(411, "a body needs its Content-Length here");
  }
  if (Number(raw.headers["content-length"] ?? 0) > BODY_LIMIT) {
    throw new PageRefusal(413, `a body has at most ${BODY_LIMIT} bytes here`);
  }
}

/** `authority`: only of the absolute form, where Host does not count (RFC 9112 §3.2.2). `query`: with its `?`. */
function splitUrl(url: string) {
  const [, authority, target = url] = /^http:\/\/([^/?]*)(.*)$/i.exec(url) ?? [];
  const [path = ""] = target.split("?", 1);
  return { authority, path, query: target.slice(path.length) };
}

/** fastify's own errors about a request have a status below 500, too. */
function isRefusal(error: Error & { readonly statusCode?: number }): boolean {
  return error.statusCode !== undefined && error.statusCode < 500;
}

function answerError(error: Error & { readonly statusCode?: number }, reply: FastifyReply): FastifyReply {
  const body = isRefusal(error) ? error.message : "this page failed: the log says why";
  if (error instanceof PageRefusal && error.allow !== undefined) reply.header("allow", error.allow);
  return text(reply.code(isRefusal(error) ? (error.statusCode ?? 500) : 500), `${body}\n`);
}

function text(reply: FastifyReply, body: string): FastifyReply {
  return reply.type(TEXT).send(body);
}

// ── the pages ────────────────────────────────────────────────────────────────────────────────────────────────────────

type PageRoute = readonly [
  method: "GET" | "PUT" | "POST",
  path: string,
  handler: RouteHandlerMethod,
  querystring?: z.ZodType,
];

const levelQuery = z.object({ level: z.enum(LOG_LEVELS, `level must be one of ${LOG_LEVELS.join(", ")}`) });

/** Schemas are those of zod: fastify's own compilers of JSON schemas are not loaded (`FASTIFY_OPTIONS`). */
const validatorOf: FastifySchemaCompiler<z.ZodType> =
  ({ schema }) =>
  (value) => {
    const { data, error } = schema.safeParse(value);
    return error === undefined ? { value: data } : { error: new PageRefusal(400, error.issues[0]?.message ?? "") };
  };

function routesOf({ checks, metrics, status, trial, ui, log }: PageOptions): PageRoute[] {
  // All readers share one buffer, even if they read slowly.
  const rendered = oncePerSecond(async () => Buffer.from(await metrics.metrics()));
  // A process that answers is alive. A liveness probe that checks more would restart processes for faults of their
  // peers.
  const alive: RouteHandlerMethod = async (_request, reply) => text(reply, "ok\n");
  const ready: RouteHandlerMethod = async ({ query }, reply) => {
    const results = [...checks(), ...logChecks()];
    const isReady = results.every((check) => check.ok);
    const isVerbose = "verbose" in (query as object) || !isReady;
    return text(reply.code(isReady ? 200 : 503), isVerbose ? report(results, isReady) : "ok\n");
  };
  const routes: PageRoute[] = [
    ["GET", "/metrics", async (_request, reply) => reply.type(metrics.contentType).send(await rendered())],
    ["GET", "/healthz", alive],
    ["GET", "/livez", alive],
    ["GET", "/ready", ready],
    ["GET", "/readyz", ready],
  ];
  if (status !== undefined) {
    routes.push(
      ["GET", "/status", async (_request, reply) => json(reply, await status())],
      ["GET", "/log-level", async (_request, reply) => text(reply, `${log.level}\n`)],
      ["PUT", "/log-level", async ({ query }, reply) => text(reply, `${changeLogLevel(log, query)}\n`), levelQuery],
    );
  }
  if (trial !== undefined) {
    routes.push(["POST", "/trial", async (request, reply) => json(reply, await trial(jsonBody(request)))]);
  }
  if (ui !== undefined) routes.push(...uiRoutes(ui));
  return routes;
}

function uiRoutes(load: () => Promise<Ui>): PageRoute[] {
  const file: RouteHandlerMethod = async ({ raw }, reply) => {
    const ui = await load();
    reply.hijack();
    ui.file(raw, reply.raw);
  };
  const events: RouteHandlerMethod = async ({ raw }, reply) => {
    const ui = await load();
    reply.hijack();
    if (raw.method === "HEAD") {
      reply.raw.writeHead(200, { connection: "close" }).end();
      return;
    }
    firstRequestOf(raw).connection.clearDeadline(); // it has no end: `ui` ends a client that reads nothing
    ui.events(raw, reply.raw);
  };
  const check: RouteHandlerMethod = async (request, reply) => {
    const asked = jsonBody(request);
    const ui = await load();
    reply.hijack();
    ui.check(asked, reply.raw);
  };
  return [
    ["GET", "/ui", async (_request, reply) => reply.redirect("/ui/")],
    ["GET", "/ui/*", file],
    ["GET", "/ui/events", events],
    ["GET", "/ui/summary", async (_request, reply) => json(reply, (await load()).summary())],
    ["POST", "/ui/check", check],
  ];
}

function notFound(path: string, routes: readonly PageRoute[]): PageRefusal {
  const methods = routes.flatMap(([each, of]) => (of === path ? [each] : []));
  if (methods.length === 0) {
    return new PageRefusal(404, `this port has: ${routes.map(([each, of]) => `${each} ${of}`).join(", ")}`);
  }
  const allow = [...methods, ...(methods.includes("GET") ? ["HEAD"] : [])].join(", ");
  return new PageRefusal(405, `this path takes: ${allow}`, allow);
}

/** `undefined` is `null` in JSON. */
function json(reply: FastifyReply, value: unknown): FastifyReply {
  return reply.type("application/json; charset=utf-8").send(JSON.stringify(value ?? null));
}

function jsonBody({ headers, body }: FastifyRequest): unknown {
  // A web page can send another type to any address without asking first.
  if (!JSON_TYPE.test(headers["content-type"] ?? "")) throw new PageRefusal(415, "the body must be application/json");
  try {
    return JSON.parse(body as string);
  } catch {
    throw new PageRefusal(400, "the body is not JSON");
  }
}

/** Changes the level until the process ends, and returns it. `query`: a `levelQuery`. */
function changeLogLevel(log: Logger, query: unknown): string {
  const { level } = query as z.infer<typeof levelQuery>;
  log.info({ from: log.level, to: level }, "log level changed");
  log.level = level;
  return level;
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
