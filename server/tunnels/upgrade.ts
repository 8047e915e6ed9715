import { createServer } from "node:http";
import type { Duplex } from "node:stream";
import type { TLSSocket } from "node:tls";
import websocket from "@fastify/websocket";
import { type FastifyInstance, type FastifyReply, type FastifyRequest, fastify } from "fastify";
import { MAX_WEBSOCKET_PAYLOAD } from "../../shared/link/carrier.ts";
import { type IdentityPattern, judgePeer, permits, subjectOf } from "../../shared/net/identity.ts";
import { ReleaseQueue } from "../../shared/net/release-queue.ts";
import { remoteOf, sourceOf } from "../../shared/net/source.ts";
import { CulvertError, printable } from "../../shared/outcomes.ts";
import type { Logger } from "../../shared/process/logger.ts";
import type { StrangerLog } from "../../shared/process/stranger-log.ts";
import { SUBPROTOCOL } from "../../shared/wire/handshake.ts";
import type { ServerMetrics } from "../metrics.ts";
import type { ServerOptions } from "../options.ts";
import { Sockets } from "../sockets.ts";
import { type AttachDeps, attach } from "./attach.ts";
import { answerTo, type HttpRefusal, TurnedAway } from "./refusal.ts";

type UpgradeOptions = AttachDeps["options"] &
  Pick<ServerOptions, "tunnelPath" | "headerLimit" | "handshakeTimeoutMs" | "maxWaitingConnections">;

/** What the agents of one cluster come through. */
export interface AgentDoor {
  readonly tunnels: AttachDeps["cluster"];
  /** Empty: everybody but Konnectivity's callers. */
  readonly identities: readonly IdentityPattern[];
  /** Where they are listed. */
  readonly rule: string;
  /** What speaks against whoever comes from this address, beside the name. */
  objection(address: string): CulvertError | undefined;
}

export interface UpgradeDeps {
  readonly options: UpgradeOptions;
  readonly links: AttachDeps["links"];
  readonly pool: AttachDeps["pool"];
  readonly metrics: ServerMetrics;
  readonly log: Logger;
  /** The log of those who are no agents of ours. */
  readonly strangers: StrangerLog;
  draining(): boolean;
  /** Too many connections had asked for nothing, and the oldest was dropped. */
  onDropped(): void;
}

/**
 * The agents' HTTP side: admission, then the WebSocket. Its http.Server never listens; it is fed with sockets that have
 * done their TLS handshake.
 */
export class UpgradePort {
  readonly sockets: Sockets;
  readonly #app: FastifyInstance;
  readonly #deps: UpgradeDeps;
  readonly #doors = new WeakMap<Duplex, AgentDoor>();
  /** Agents are lost together: with a path, or with a balancer. */
  readonly #ends = new ReleaseQueue();
  readonly #turnedAway = new WeakMap<Duplex, TurnedAway>();

  private constructor(deps: UpgradeDeps) {
    this.#deps = deps;
    this.sockets = new Sockets({
      deadlineMs: deps.options.handshakeTimeoutMs,
      maxWaiting: deps.options.maxWaitingConnections,
      onLate: destroy,
      onDropped: () => deps.onDropped(),
    });
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
      const door = this.#doors.get(socket);
      if (identity === undefined || door === undefined) return ws.terminate(); // was judged in the hook
      void attach(
        ws,
        socket,
        { identity: subjectOf(identity), peer: identity },
        { ...this.#deps, cluster: door.tunnels },
      );
    });
    this.#app.server.on("clientError", (_error: Error, socket: Duplex) => destroy(socket));
    await this.#app.ready();
  }

  /** A connection after its TLS handshake. `backInMs`: there are too many; this one is told to come back after so long. */
  take(socket: TLSSocket, door: AgentDoor, backInMs?: number): void {
    this.sockets.add(socket);
    this.#ends.watch(socket);
    this.#doors.set(socket, door);
    if (backInMs !== undefined) this.#turnedAway.set(socket, new TurnedAway(backInMs));
    this.#app.server.emit("connection", socket);
  }

  /** After the last carrier: Fastify would cut what is left. */
  async close(): Promise<void> {
    await this.#app.close();
  }

  readonly #onRequest = (request: FastifyRequest, reply: FastifyReply, admitted: () => void): void => {
    const { socket } = request.raw;
    const door = this.#doors.get(socket);
    const refusal = door === undefined ? "path" : (judge(request, door, this.#deps) ?? this.#turnedAway.get(socket));
    if (refusal === undefined) {
      admitted();
      return;
    }
    const { status, sentence, headers, level } = answerTo(refusal, this.#deps.options.tunnelPath);
    this.#deps.metrics.agentRefused(String(status));
    const remote = remoteOf(socket);
    this.#deps.strangers.tell(level, { remote, code: status, reason: sentence }, "agent refused");
    void reply
      .code(status)
      .headers({ ...headers, connection: "close" })
      .type("text/plain")
      .send(`${sentence}\n`);
  };
}

/** Why this is no upgrade of an agent. In this order, so that a stranger learns nothing but that it is one. */
function judge(
  request: FastifyRequest,
  door: AgentDoor,
  { options, links, draining }: UpgradeDeps,
): CulvertError | HttpRefusal | undefined {
  const { identities } = door;
  const socket = request.raw.socket as TLSSocket;
  const { identity, refusal } = judgePeer(socket);
  if (identity === undefined) return new CulvertError("unauthenticated", refusal);
  if (!permits(identities, "agent", identity)) {
    const rule = identities.length > 0 ? `is not among ${door.rule}` : "is a caller's, not an agent's";
    const subject = printable(subjectOf(identity), 120);
    return new CulvertError("forbidden", `the client certificate ${subject} ${rule}`);
  }
  const objection = door.objection(sourceOf(socket).address);
  if (objection !== undefined) return objection;
  if (request.url.split("?", 1)[0] !== options.tunnelPath) return "path";
  const offered = (request.headers["sec-websocket-protocol"] ?? "").split(",").map((name) => name.trim());
  if (!request.ws || !offered.includes(SUBPROTOCOL)) return "upgrade";
  // Links that are open may still get another carrier; what a hello wants is known behind the upgrade only.
  if (draining() && links.size === 0) return new CulvertError("draining", "this server is shutting down");
  return undefined;
}

function destroy(socket: Duplex): void {
  socket.destroy();
}
