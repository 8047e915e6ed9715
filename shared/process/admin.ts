import type { AddressInfo } from "node:net";
import type { FastifyInstance } from "fastify";
import type { Registry } from "prom-client";
import { type ListenAt, listenError } from "./listen-error.ts";
import type { Logger } from "./logger.ts";

/** One condition of readiness, such as "listeners are up". */
export interface Check {
  readonly name: string;
  readonly ok: boolean;
  readonly detail?: string;
}

/** Port 0 takes a free one: whether 0 means "off" is the caller's business. */
export interface AdminOptions extends ListenAt {
  /** Given: /healthz, /livez, /ready and /readyz are served. */
  readonly checks?: () => readonly Check[];
  readonly metrics: Registry;
  /** Given: /status is served, as JSON. */
  readonly status?: () => unknown;
  /** Given: what is posted to /trial, as JSON, is handed over, and the answer sent back. */
  readonly trial?: (asked: unknown) => Promise<unknown>;
  readonly log: Logger;
}

export interface Admin {
  readonly address: AddressInfo;
  /** Stops listening and ends idle connections at once. */
  close(): Promise<void>;
}

/**
 * The health or the admin listener (design: "Seen from outside"). Fastify is loaded here and not before:
 * an agent's first tunnel must not wait for it.
 */
export async function startAdmin(options: AdminOptions): Promise<Admin> {
  const { fastify } = await import("fastify");
  const app: FastifyInstance = fastify({
    forceCloseConnections: true,
    bodyLimit: 1_024,
    connectionTimeout: 10_000,
    requestTimeout: 10_000,
    keepAliveTimeout: 30_000,
    // Node looks for late headers every 30 s only, and a peer that drips is never idle.
    http: { maxHeaderSize: 8_192, headersTimeout: 10_000, connectionsCheckingInterval: 1_000 },
  });
  addRoutes(app, options);
  const onClientError = (_error: Error, socket: { destroy(): void }): void => socket.destroy();
  app.server.on("clientError", onClientError);
  await listen(app, options);
  const address = app.server.address() as AddressInfo;
  options.log.debug({ address: address.address, port: address.port, option: options.option }, "listening");
  let closing: Promise<void> | undefined;
  return {
    address,
    close: () => {
      closing ??= app.close();
      return closing;
    },
  };
}

function addRoutes(app: FastifyInstance, { checks, metrics, status, trial }: AdminOptions): void {
  app.get("/metrics", async (_request, reply) => reply.type(metrics.contentType).send(await metrics.metrics()));
  if (status !== undefined) app.get("/status", async () => status());
  if (trial !== undefined) app.post("/trial", async (request) => trial(request.body));
  if (checks === undefined) return;
  // Alive is whoever answers: a liveness probe that looks further restarts processes for their peers' faults.
  for (const path of ["/healthz", "/livez"])
    app.get(path, async (_request, reply) => reply.type("text/plain").send("ok\n"));
  for (const path of ["/ready", "/readyz"]) {
    app.get<{ Querystring: Record<string, unknown> }>(path, async (request, reply) => {
      const results = checks();
      const ready = results.every((check) => check.ok);
      const verbose = "verbose" in request.query || !ready;
      return reply
        .code(ready ? 200 : 503)
        .type("text/plain")
        .send(verbose ? report(results, ready) : "ok\n");
    });
  }
}

/** The layout of Kubernetes' own verbose health checks. */
function report(checks: readonly Check[], ready: boolean): string {
  const lines = checks.map(({ name, ok, detail }) => {
    const verdict = ok ? `[+]${name} ok` : `[-]${name} failed`;
    return detail === undefined || detail === "" ? verdict : `${verdict}: ${detail}`;
  });
  return [...lines, `readyz check ${ready ? "passed" : "failed"}`, ""].join("\n");
}

async function listen(app: FastifyInstance, at: AdminOptions): Promise<void> {
  const { port, host } = at;
  try {
    await app.listen({ port, host: host === "" ? "::" : host });
  } catch (error) {
    const noIpv6 =
      host === "" && ["EAFNOSUPPORT", "EADDRNOTAVAIL"].includes((error as NodeJS.ErrnoException).code ?? "");
    if (!noIpv6) throw await failed(app, listenError(error, at));
    await app.listen({ port, host: "0.0.0.0" }).catch(async (again: unknown) => {
      throw await failed(app, listenError(again, at));
    });
  }
}

async function failed(app: FastifyInstance, error: Error): Promise<Error> {
  await app.close();
  return error;
}
