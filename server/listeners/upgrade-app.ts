import { ServerResponse } from "node:http";
import type { WebsocketHandler } from "@fastify/websocket";
import type { FastifyInstance, FastifyRequest } from "fastify";
import { FASTIFY_OPTIONS } from "../../shared/http/fastify-options.ts";
import { UPGRADES } from "../../shared/link/accept.ts";
import { firstRequestOf, type RequestHandler } from "../../shared/listen/first-request.ts";
import type { IncomingConnection } from "../../shared/listen/incoming-connection.ts";
import { type CulvertError, toCulvertError } from "../../shared/outcomes.ts";

/** Bytes that follow an upgrade are still unread in the socket. */
const NO_HEAD = Buffer.alloc(0);

/**
 * The fastify application of a port whose requests become WebSockets. It does not listen: its requests come from
 * `requestsTo`. An error that a hook throws is the only kind of refusal, and `refuse` answers it on the connection. The
 * port ends its connections itself, and does not close the application, which would end all WebSockets at once.
 *
 * ```
 *  onRequest hooks of the port ─▶ preHandler hooks of its route ─▶ upgrade ─▶ wsHandler
 *             └──────────────────────────────┴─▶ refuse
 * ```
 *
 * fastify looks for the route first, and a request of another path or method has its handler for 404, with the same
 * onRequest hooks. So the last of these refuses such requests, and no peer learns of paths before.
 */
export async function upgradeApp(
  refuse: (error: CulvertError, request: FastifyRequest) => void,
): Promise<FastifyInstance> {
  const { default: fastify } = await import("fastify");
  const { default: websocket } = await import("@fastify/websocket");
  const app = fastify({
    ...FASTIFY_OPTIONS,
    exposeHeadRoutes: false,
    // Paths are compared as they are written. `%` is escaped, so that fastify rejects no path before the hooks.
    rewriteUrl: ({ url = "" }) => `${url.startsWith("/") ? "" : "/"}${url.replaceAll("%", "%25")}`,
  });
  app.setErrorHandler(async (error, request, reply) => {
    // The plugin destroys an upgrade's socket after a reply of fastify's, and a reset may overtake the sentence.
    reply.hijack();
    refuse(toCulvertError(error), request);
  });
  await app.register(websocket, {
    options: UPGRADES,
    errorHandler: (_error, ws) => ws.terminate(), // a fault of a route's handler
  });
  app.addHook("preHandler", async ({ ws }, { raw }) => {
    if (ws && raw.socket) raw.detachSocket(raw.socket);
  });
  return app;
}

/**
 * A route's handler of WebSockets. It and the hook above let go of what would keep the request in memory, with its
 * token, as long as the WebSocket lives. Errors of the WebSocket are `attach`'s from now on.
 */
export function webSocketHandler(attach: (...by: Parameters<WebsocketHandler>) => void): WebsocketHandler {
  return (ws, request) => {
    ws.removeAllListeners("error"); // the plugin's
    attach(ws, request);
  };
}

/** Gives the requests of a port to its application; they have passed no check. */
export function requestsTo({ server, routing }: FastifyInstance): Omit<RequestHandler, "onClientError" | "onHttp2"> {
  return {
    onUpgrade: (request, { socket }) => server.emit("upgrade", request, socket, NO_HEAD),
    onConnect: (request) => routing(request, new ServerResponse(request)),
    onRequest: (request, _connection, response) => routing(request, response),
  };
}

/** The connection that a request has come on. `Host` is the type that the port has set. */
export function connectionOf<Host>({ raw }: FastifyRequest): IncomingConnection<Host> {
  return firstRequestOf(raw).connection as IncomingConnection<Host>;
}
