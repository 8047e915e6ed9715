import { createServer } from "node:http";
import type { Duplex } from "node:stream";
import type { TLSSocket } from "node:tls";
import websocket from "@fastify/websocket";
import { type FastifyInstance, type FastifyReply, type FastifyRequest, fastify } from "fastify";
import { MAX_WEBSOCKET_PAYLOAD } from "../../shared/link/carrier.ts";
import { type IdentityPattern, judgePeer, type PeerIdentity, permits } from "../../shared/net/identity.ts";
import { printable } from "../../shared/outcomes.ts";
import type { Logger } from "../../shared/process/logger.ts";
import { SUBPROTOCOL } from "../../shared/wire/handshake.ts";
import type { ServerMetrics } from "../metrics.ts";
import type { ServerOptions } from "../options.ts";
import { Sockets } from "../sockets.ts";
import { type AttachDeps, attach } from "./attach.ts";

export interface UpgradeDeps {
  readonly options: AttachDeps["options"] & Pick<ServerOptions, "tunnelPath" | "headerLimit" | "handshakeTimeoutMs">;
  readonly identities: readonly IdentityPattern[];
  readonly cluster: AttachDeps["cluster"];
  readonly metrics: ServerMetrics;
  readonly log: Logger;
  draining(): boolean;
}

/** A no before the upgrade: plain HTTP, so that an agent's log, or curl, shows the reason. */
interface Refusal {
  readonly status: 401 | 403 | 404 | 426 | 503;
  readonly reason: string;
  readonly headers?: Readonly<Record<string, string>>;
}

/**
 * What a draining server tells agents about when to come back, s: about as long as its restart takes. They try at once
 * anyway, where another one may stand at the same address; longer, and an orderly restart would cost more than a crash.
 */
export const RETRY_AFTER_S = 1;

/**
 * The agents' HTTP side: admission, then the WebSocket. Its http.Server never listens; it is fed with sockets that have
 * done their TLS handshake.
 */
export class UpgradePort {
  readonly sockets = new Sockets();
  readonly #app: FastifyInstance;
  readonly #deps: UpgradeDeps;
  private constructor(deps: UpgradeDeps) {
    this.#deps = deps;
    this.#app = fastify({
      logger: false,
      exposeHeadRoutes: false,
      return503OnClosing: false,
      serverFactory: (handler) =>
        createServer({ maxHeaderSize: deps.options.headerLimit, headersTimeout: 0, requestTimeout: 0 }, handler),
    });
  }

  static async create(deps: UpgradeDeps): Promise<UpgradePort> {
    const port = new UpgradePort(deps);
    await port.#build();
    return port;
  }

  async #build(): Promise<void> {
    const { options } = this.#deps;
    await this.#app.register(websocket, {
      options: {
        perMessageDeflate: false,
        maxPayload: MAX_WEBSOCKET_PAYLOAD,
        clientTracking: false,
        handleProtocols: (offered) => (offered.has(SUBPROTOCOL) ? SUBPROTOCOL : false),
      },
      // The default closes every WebSocket at once; tunnels are drained by their own rules (design: "Lifecycle").
      preClose: (done) => done(),
      errorHandler: (_error, socket) => socket.terminate(),
    });
    // Behind the plugin's own hook, which says whether the request is an upgrade.
    this.#app.addHook("onRequest", this.#onRequest);
    this.#app.get(options.tunnelPath, { websocket: true }, (ws, request) => {
      const socket = request.raw.socket as TLSSocket;
      this.sockets.stopWaiting(socket);
      const { identity } = judgePeer(socket);
      if (identity === undefined) return ws.terminate(); // was judged in the hook
      void attach(ws, socket, subjectOf(identity), this.#deps);
    });
    this.#app.server.on("clientError", (_error: Error, socket: Duplex) => destroy(socket));
    await this.#app.ready();
  }

  /** A connection after its TLS handshake. */
  take(socket: TLSSocket): void {
    this.sockets.add(socket, this.#deps.options.handshakeTimeoutMs, destroy);
    this.#app.server.emit("connection", socket);
  }

  /** After the last carrier: Fastify would cut what is left. */
  async close(): Promise<void> {
    await this.#app.close();
  }

  readonly #onRequest = (request: FastifyRequest, reply: FastifyReply, admitted: () => void): void => {
    const refusal = judge(request, this.#deps);
    if (refusal === undefined) {
      admitted();
      return;
    }
    const { status, reason, headers } = refusal;
    this.#deps.metrics.agentRefused(String(status));
    const { remoteAddress, remotePort } = request.raw.socket;
    this.#deps.log.warn({ remote: `${remoteAddress}:${remotePort}`, code: status, reason }, "agent refused");
    void reply
      .code(status)
      .headers({ ...headers, connection: "close" })
      .type("text/plain")
      .send(`${reason}\n`);
  };
}

/** In this order, so that a stranger learns nothing but that it is one. */
function judge(request: FastifyRequest, { options, identities, draining }: UpgradeDeps): Refusal | undefined {
  const { identity, refusal } = judgePeer(request.raw.socket as TLSSocket);
  if (identity === undefined) return { status: 401, reason: refusal };
  if (!permits(identities, "agent", identity)) {
    const rule = identities.length > 0 ? "is not among --agent-identities" : "is a caller's, not an agent's";
    return { status: 403, reason: `the client certificate ${printable(subjectOf(identity), 120)} ${rule}` };
  }
  if (request.url.split("?", 1)[0] !== options.tunnelPath) {
    return { status: 404, reason: `agents connect at ${options.tunnelPath} (--tunnel-path)` };
  }
  const offered = (request.headers["sec-websocket-protocol"] ?? "").split(",").map((name) => name.trim());
  if (!request.ws || !offered.includes(SUBPROTOCOL)) {
    return {
      status: 426,
      reason: `this is the port of culvert's agents: upgrade to websocket, subprotocol ${SUBPROTOCOL}`,
      headers: { upgrade: "websocket" },
    };
  }
  if (draining()) {
    return { status: 503, reason: "this server is shutting down", headers: { "retry-after": String(RETRY_AFTER_S) } };
  }
  return undefined;
}

/** Whom a certificate names: stays the same when the certificate is renewed, other than its fingerprint. */
function subjectOf({ cn, o, dns, uri, fingerprint256 }: PeerIdentity): string {
  const names = [
    ...(cn === undefined ? [] : [`CN=${cn}`]),
    ...o.map((value) => `O=${value}`),
    ...dns.map((value) => `DNS=${value}`),
    ...uri.map((value) => `URI=${value}`),
  ];
  return names.length === 0 ? fingerprint256 : names.map((name) => name.replace(/[\\,]/g, "\\$&")).join(",");
}

function destroy(socket: Duplex): void {
  socket.destroy();
}
