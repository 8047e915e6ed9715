import { createServer, type IncomingMessage } from "node:http";
import type { Duplex } from "node:stream";
import type { TLSSocket } from "node:tls";
import websocket from "@fastify/websocket";
import { type FastifyInstance, type FastifyReply, type FastifyRequest, fastify } from "fastify";
import { MAX_WEBSOCKET_PAYLOAD } from "../../shared/link/carrier.ts";
import { InnerServers } from "../../shared/link/inner-tls.ts";
import { releaseInTurn } from "../../shared/net/release-in-turn.ts";
import { remoteOf, sourceOf } from "../../shared/net/source.ts";
import { TurnQueue } from "../../shared/net/turn-queue.ts";
import { CulvertError, toCulvertError } from "../../shared/outcomes.ts";
import type { Logger } from "../../shared/process/logger.ts";
import type { StrangerLog } from "../../shared/process/stranger-log.ts";
import { SUBPROTOCOL } from "../../shared/wire/handshake.ts";
import type { ServerMetrics } from "../metrics.ts";
import type { ServerOptions } from "../options.ts";
import { Sockets } from "../ports/sockets.ts";
import { AnonymousCarriers } from "./anonymous.ts";
import { type Arrival, type AttachDeps, attach } from "./attach.ts";
import type { Credential } from "./credential.ts";
import { identify } from "./identify.ts";
import type { InnerDoor } from "./inner.ts";
import { answerRaw } from "./raw-answer.ts";
import { type Answer, answerTo, type HttpRefusal, TurnedAway } from "./refusal.ts";

type UpgradeOptions = AttachDeps["options"] &
  Pick<ServerOptions, "tunnelPath" | "headerLimit" | "maxWaitingConnections" | "maxInnerHandshakes">;

/** What the agents of one cluster come through. */
export interface AgentDoor extends InnerDoor {
  readonly tunnels: AttachDeps["cluster"];
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

/** What a request is judged by. */
type Asked = Pick<FastifyRequest, "headers" | "url" | "ws">;

/** What a CONNECT hears: whoever sends one takes us for the callers' port. */
const CALLER: Answer = {
  status: 405,
  sentence: "this is the port of culvert's agents; callers come to --server-port",
  headers: { allow: "GET" },
  level: "info",
};

/**
 * The agents' HTTP side: admission, then the WebSocket. Its http.Server never listens; it is fed with sockets that have
 * done their TLS handshake.
 */
export class UpgradePort {
  readonly sockets: Sockets;
  readonly #app: FastifyInstance;
  readonly #deps: UpgradeDeps;
  readonly #doors = new WeakMap<Duplex, AgentDoor>();
  /** Those that were let in. */
  readonly #arrivals = new WeakMap<Duplex, Arrival>();
  readonly #anonymous: AnonymousCarriers;
  readonly #innerServers = new InnerServers();
  /** Agents are lost together, and come back together: with a path, or with a balancer. */
  readonly #turns = new TurnQueue();
  readonly #turnedAway = new WeakMap<Duplex, TurnedAway>();

  private constructor(deps: UpgradeDeps) {
    this.#deps = deps;
    this.#anonymous = new AnonymousCarriers(deps.options.maxInnerHandshakes);
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
      clientErrorHandler: (error, socket) => this.#onClientError(error, socket),
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
      const arrival = this.#arrivals.get(socket);
      const door = this.#doors.get(socket);
      if (arrival === undefined || door === undefined) return ws.terminate(); // was judged in the hook
      const own = { turns: this.#turns, innerServers: this.#innerServers, door, cluster: door.tunnels };
      void attach(ws, socket, arrival, { ...this.#deps, ...own });
    });
    await this.#app.ready();
    // No route sees a CONNECT, and without a listener Node drops its connection without a word.
    this.#app.server.on("connect", (request, socket) => void this.#onConnect(request, socket as TLSSocket));
  }

  /** A connection after its TLS handshake. `backInMs`: there are too many; this one is told to come back after so long. */
  take(socket: TLSSocket, door: AgentDoor, backInMs?: number): void {
    this.sockets.add(socket);
    releaseInTurn(socket, this.#turns);
    this.#doors.set(socket, door);
    if (backInMs !== undefined) this.#turnedAway.set(socket, new TurnedAway(backInMs));
    this.#turns.run(() => {
      if (!socket.destroyed) this.#app.server.emit("connection", socket);
    });
  }

  /** After the last carrier: Fastify would cut what is left. */
  async close(): Promise<void> {
    await this.#app.close();
  }

  readonly #onRequest = async (request: FastifyRequest, reply: FastifyReply): Promise<void> => {
    const socket = request.raw.socket as TLSSocket;
    const refusal = (await this.#judge(request, socket)) ?? this.#turnedAway.get(socket);
    if (refusal === undefined) return;
    const answer = answerTo(refusal, this.#deps.options.tunnelPath);
    const { status, sentence, headers } = answer;
    const cause = refusal instanceof CulvertError && refusal.cause instanceof Error ? refusal.cause.message : undefined;
    this.#tell(socket, answer, cause);
    await reply
      .code(status)
      .headers({ ...headers, connection: "close" })
      .type("text/plain")
      .send(`${sentence}\n`);
  };

  async #onConnect({ headers }: IncomingMessage, socket: TLSSocket): Promise<void> {
    const { tunnelPath } = this.#deps.options;
    const refusal = (await this.#judge({ headers, url: tunnelPath, ws: false }, socket)) ?? "upgrade";
    const answer = refusal === "upgrade" ? CALLER : answerTo(refusal, tunnelPath);
    this.#tell(socket, answer);
    answerRaw(socket, answer);
  }

  /** Somebody got no tunnel: for metrics and log. */
  #tell(socket: TLSSocket, { status, sentence: reason, level }: Answer, detail?: string): void {
    const cluster = this.#doors.get(socket)?.tunnels.name ?? "";
    this.#deps.metrics.agentRefused(String(status), { cluster, from: sourceOf(socket).address, reason });
    const line = { remote: remoteOf(socket), cluster, code: status, reason, ...(detail && { detail }) };
    this.#deps.strangers.tell(level, line, "agent refused");
  }

  /** Why this is no upgrade of an agent. In this order, so that a stranger learns nothing but that it is one. */
  async #judge(request: Asked, socket: TLSSocket): Promise<CulvertError | HttpRefusal | undefined> {
    const { options, links, draining } = this.#deps;
    const door = this.#doors.get(socket);
    if (door === undefined) return "path";
    let credential: Credential | CulvertError;
    try {
      credential = await identify(socket, request.headers, door, {
        deadlineMs: options.handshakeTimeoutMs,
        maxJudged: options.maxJudgedAgents,
        onJudging: () => this.sockets.setAside(socket),
      });
    } catch (error) {
      credential = toCulvertError(error);
      // Whoever shows nothing here may prove himself inside.
      if (door.innerTls === "never" || credential.code !== "unauthenticated") return credential;
    }
    const objection = door.objection(sourceOf(socket).address);
    if (objection !== undefined) return objection;
    if (request.url.split("?", 1)[0] !== options.tunnelPath) return "path";
    const offered = (request.headers["sec-websocket-protocol"] ?? "").split(",").map((name) => name.trim());
    if (!request.ws || !offered.includes(SUBPROTOCOL)) return "upgrade";
    // Links that are open may still get another carrier; what a hello wants is known behind the upgrade only.
    if (draining() && links.size === 0) return new CulvertError("draining", "this server is shutting down");
    return this.#admit(socket, door, credential);
  }

  /** Those of whom nobody knows who they are, are few. */
  #admit(socket: TLSSocket, door: AgentDoor, credential: Credential | CulvertError): CulvertError | undefined {
    if (!(credential instanceof CulvertError)) {
      this.#arrivals.set(socket, { credential, onKnown: () => {} });
      return undefined;
    }
    try {
      const leave = this.#anonymous.enter(door.tunnels.name, sourceOf(socket).address);
      socket.once("close", leave);
      this.#arrivals.set(socket, { credential, onKnown: leave });
      return undefined;
    } catch (error) {
      return toCulvertError(error);
    }
  }

  #onClientError(error: NodeJS.ErrnoException, socket: Duplex): void {
    if (socket.writableEnded) return; // has been answered; what still comes is an error each time
    if (error.code !== "HPE_HEADER_OVERFLOW" || !socket.writable) {
      socket.destroy();
      return;
    }
    const { headerLimit } = this.#deps.options;
    const sentence = `the request header is larger than ${headerLimit} bytes (--header-limit): is the token a token?`;
    const answer: Answer = { status: 431, sentence, headers: {}, level: "info" };
    this.#tell(socket as TLSSocket, answer);
    answerRaw(socket, answer);
  }
}

function destroy(socket: Duplex): void {
  socket.destroy();
}
