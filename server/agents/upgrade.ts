import type { IncomingMessage } from "node:http";
import type { Socket } from "node:net";
import type { Duplex } from "node:stream";
import { TLSSocket } from "node:tls";
import websocket from "@fastify/websocket";
import { type FastifyInstance, type FastifyReply, type FastifyRequest, fastify } from "fastify";
import { networkOf } from "../../shared/address/network.ts";
import { WEBSOCKET_BOUNDS } from "../../shared/link/carrier.ts";
import { formatEndpoint, IncomingConnection, remoteOf, sourceOf } from "../../shared/listen/incoming-connection.ts";
import { CulvertError, toCulvertError } from "../../shared/outcomes.ts";
import type { Logger } from "../../shared/runtime/logger.ts";
import type { ThrottledLog } from "../../shared/runtime/throttled-log.ts";
import { claimedBy } from "../../shared/tls/identity.ts";
import { SUBPROTOCOL } from "../../shared/wire/handshake.ts";
import { tellLeft } from "../listeners/closed-early.ts";
import { RequestReader } from "../listeners/request-reader.ts";
import { Sockets } from "../listeners/sockets.ts";
import type { WaitingConnections } from "../listeners/waiting-connections.ts";
import type { ServerMetrics } from "../metrics/server-metrics.ts";
import type { ServerOptions } from "../options/options.ts";
import type { Credential } from "../tunnels/credential.ts";
import type { AnonymousCarriers } from "./anonymous.ts";
import { type Arrival, type AttachDeps, attach } from "./attach.ts";
import { challenge } from "./challenge.ts";
import { claimedCertificate } from "./claimed-certificate.ts";
import { HandshakeTime } from "./handshake-time.ts";
import { nameIn } from "./host.ts";
import { identify, type TlsPeer } from "./identify.ts";
import type { InnerDoor } from "./inner.ts";
import { answerRaw } from "./raw-answer.ts";
import { type Answer, answerTo, type HttpRefusal, TurnedAway } from "./refusal.ts";
import { isDoctorsLook, refusalKind, shownBy } from "./refusal-kind.ts";
import { originFault, requestFault } from "./strict-request.ts";
import { CALLER, notUnderstood } from "./wrong-port.ts";

/** Whatever follows an upgrade is still unread in its socket. */
const NO_HEAD = Buffer.alloc(0);

/**
 * While a request is judged its peer may leave, and only a reader hears of that; no more is read than the socket's
 * buffer takes.
 */
function notice(socket: Socket): void {
  socket.on("readable", ignore).once("end", destroyThis);
}

function unnotice(socket: Socket): void {
  socket.off("readable", ignore).off("end", destroyThis);
}

function ignore(): void {}

function destroyThis(this: Socket): void {
  this.destroy();
}

type UpgradeOptions = AttachDeps["options"] &
  Pick<ServerOptions, "agentPath" | "agentAllowedOrigins" | "headerLimit" | "maxWaitingConnections">;

/** What the agents of one cluster come through. */
export interface AgentDoor extends InnerDoor {
  readonly tunnels: AttachDeps["cluster"];
  /** What speaks against whoever comes from this address, beside the name. */
  objection(address: string): CulvertError | undefined;
}

/** SNI and Host lead to different clusters: who stands in front may read one, and we the other (design: "Trust"). */
function otherName(cluster: string): Answer {
  const sentence = `Host names cluster "${cluster}", and the connection came to another one by its server name (SNI)`;
  return { status: 421, sentence, headers: {}, level: "warn" };
}

/** Why somebody gets no tunnel. */
type Refusal = CulvertError | HttpRefusal | Answer;

export interface UpgradeDeps extends Pick<AttachDeps, "turns" | "innerServers" | "innerHandshakes" | "agentLog"> {
  readonly options: UpgradeOptions;
  readonly links: AttachDeps["links"];
  readonly metrics: ServerMetrics;
  readonly log: Logger;
  /** The log of those who are no agents of ours. */
  readonly throttledLog: ThrottledLog;
  /** Connections of all TCP ports together that have asked for nothing. */
  readonly waiting: WaitingConnections;
  /** Anonymous carriers of all ports together, until their hello. */
  readonly beforeHello: AnonymousCarriers;
  /** Where connections come without a door: each request leads to one, or to a refusal. */
  readonly doorOf?: (
    request: Pick<IncomingMessage, "rawHeaders">,
    address: string,
  ) => AgentDoor | CulvertError | Answer;
  /** Where a name in the ClientHello leads to a door: the one that this name would lead to. */
  readonly doorNamed?: (name: string) => AgentDoor | undefined;
  draining(): boolean;
  /** Too many connections had asked for nothing, and the oldest was dropped. */
  onDropped(): void;
}

/** What a request is judged by. */
type Asked = Pick<IncomingMessage, "headers" | "rawHeaders" | "httpVersion"> & Pick<FastifyRequest, "url" | "ws">;

/**
 * The agents' HTTP side of one port: admission, then the WebSocket. It is given sockets that have done their TLS
 * handshake, or need none, and reads one request of each; only upgrades come to Fastify.
 */
export class UpgradePort {
  readonly sockets: Sockets;
  readonly #app: FastifyInstance;
  readonly #requests: RequestReader;
  readonly #deps: UpgradeDeps;
  readonly #doors = new WeakMap<Duplex, AgentDoor>();
  /** Those that were let in. */
  readonly #arrivals = new WeakMap<Duplex, Arrival>();
  readonly #turnedAway = new WeakMap<Duplex, TurnedAway>();
  #hasToldOfClaims = false;

  private constructor(deps: UpgradeDeps) {
    this.#deps = deps;
    this.sockets = new Sockets({
      deadlineMs: deps.options.handshakeTimeoutMs,
      maxWaiting: deps.options.maxWaitingConnections,
      all: deps.waiting,
      onLate: (socket) => this.sockets.dismiss(socket),
      onDropped: () => deps.onDropped(),
    });
    this.#requests = new RequestReader(deps.options.headerLimit, {
      onConnect: (request, socket) => void this.#onOther(request, socket as Socket, CALLER),
      onUpgrade: (request, socket) => this.#onUpgrade(request, socket as Socket),
      onRequest: (request, socket) => void this.#onOther(request, socket as Socket),
      onClientError: (error, socket) => this.#onClientError(error, socket),
    });
    this.#app = fastify({ logger: false, exposeHeadRoutes: false, return503OnClosing: false });
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
        ...WEBSOCKET_BOUNDS,
        clientTracking: false,
        handleProtocols: (offered) => (offered.has(SUBPROTOCOL) ? SUBPROTOCOL : false),
      },
      // The default closes every WebSocket at once; tunnels are drained by their own rules (design: "Lifecycle").
      preClose: (done) => done(),
      errorHandler: (_error, socket) => socket.terminate(),
    });
    // Behind the plugin's own hook, which says whether the request is an upgrade.
    this.#app.addHook("onRequest", this.#onRequest);
    this.#app.get(options.agentPath, { websocket: true }, (ws, request) => {
      const { socket } = request.raw;
      this.sockets.stopWaiting(socket);
      const arrival = this.#arrivals.get(socket);
      const door = this.#doors.get(socket);
      if (arrival === undefined || door === undefined) return ws.terminate(); // was judged in the hook
      void attach(ws, socket, arrival, { ...this.#deps, door, cluster: door.tunnels });
    });
    await this.#app.ready();
  }

  /**
   * A connection after its TLS handshake, or one without. No door: `doorOf` finds it. `backInMs`: there are too many; this
   * one is told to come back after so long.
   */
  take(socket: Socket, door: AgentDoor | undefined, backInMs?: number): void {
    const { turns } = this.#deps;
    const source = sourceOf(socket); // a socket that is cut no longer knows it
    this.sockets.add(socket, networkOf(source.address), () => this.#onLeft(socket, formatEndpoint(source)));
    if (door !== undefined) this.#doors.set(socket, door);
    if (backInMs !== undefined) this.#turnedAway.set(socket, new TurnedAway(backInMs));
    turns.run(() => {
      if (!socket.destroyed) this.#requests.read(socket);
    });
  }

  #onLeft(socket: Socket, remote: string): void {
    if (!(socket instanceof TLSSocket)) return;
    const cluster = this.#doors.get(socket)?.tunnels.name ?? "";
    tellLeft({ listener: "agents", cluster, remote, socket }, this.#deps);
  }

  /** After the last carrier: Fastify would cut what is left. */
  async close(): Promise<void> {
    await this.#app.close();
  }

  #onUpgrade(request: IncomingMessage, socket: Socket): void {
    notice(socket);
    this.#app.server.emit("upgrade", request, socket, NO_HEAD);
  }

  readonly #onRequest = async (request: FastifyRequest, reply: FastifyReply): Promise<void> => {
    const { url, ws } = request;
    const { socket, headers, rawHeaders, httpVersion } = request.raw;
    const refusal =
      (await this.#judge({ headers, rawHeaders, httpVersion, url, ws }, socket)) ?? this.#turnedAway.get(socket);
    unnotice(socket);
    if (refusal === undefined) return;
    reply.hijack();
    this.#refuse(socket, this.#answerTo(refusal, { headers }, socket), { headers }, refusal);
  };

  /** A request that is no upgrade; `answer`: what it is told unless something else speaks against it first. */
  async #onOther(request: IncomingMessage, socket: Socket, answer?: Answer): Promise<void> {
    notice(socket);
    const { headers, rawHeaders, httpVersion } = request;
    const url = answer === undefined ? (request.url ?? "") : this.#deps.options.agentPath;
    const refusal = (await this.#judge({ headers, rawHeaders, httpVersion, url, ws: false }, socket)) ?? "upgrade";
    unnotice(socket);
    const own = refusal === "upgrade" ? answer : undefined;
    this.#refuse(socket, own ?? this.#answerTo(refusal, { headers }, socket), { headers }, refusal);
  }

  #refuse(socket: Socket, answer: Answer, asked: Pick<Asked, "headers">, refusal: Refusal): void {
    this.sockets.stopWaiting(socket); // it has made its request
    const cause = refusal instanceof CulvertError && refusal.cause instanceof Error ? refusal.cause.message : undefined;
    this.#tell(socket, answer, asked, cause);
    answerRaw(socket, answer);
  }

  #answerTo(refusal: Refusal, { headers: sent }: Pick<Asked, "headers">, socket: Socket): Answer {
    const isAnswer = typeof refusal !== "string" && !(refusal instanceof CulvertError);
    const answer = isAnswer ? refusal : answerTo(refusal, this.#deps.options.agentPath);
    const door = this.#doors.get(socket);
    if (answer.status !== 401 || door === undefined) return answer;
    return { ...answer, headers: { ...answer.headers, "www-authenticate": challenge(door, sent.authorization) } };
  }

  /** Somebody got no tunnel: for metrics and log. */
  #tell(
    socket: Socket,
    { status, sentence: reason, level }: Answer,
    { headers }: Pick<Asked, "headers">,
    detail?: string,
  ): void {
    const door = this.#doors.get(socket);
    const cluster = door?.tunnels.name ?? "";
    this.#deps.metrics.agentRefused(String(status), { cluster, from: sourceOf(socket).address, reason });
    const certificate = status === 401 ? claimedBy(socket) : undefined;
    const more = { ...(certificate && { certificate }), ...(detail && { detail }) };
    const line = { remote: remoteOf(socket), cluster, code: status, reason, ...more };
    const shown = shownBy(socket, headers, door);
    if (isDoctorsLook(headers, shown)) this.#deps.log.debug(line, "a doctor's look without a credential was refused");
    else this.#deps.throttledLog.write(level, line, "agent refused", { kind: refusalKind(status, shown) });
  }

  /** Why this is no upgrade of an agent. In this order, so that a stranger learns nothing but that it is one. */
  async #judge(request: Asked, socket: Socket): Promise<Refusal | undefined> {
    const { options, links, draining } = this.#deps;
    const fault = requestFault({ ...request, isUpgrade: request.ws });
    if (fault !== undefined) return fault;
    const door = this.#findDoor(request, socket);
    if (!("tunnels" in door)) return door;
    let credential: Credential | CulvertError;
    try {
      credential = await identify(tlsPeerOf(socket), request.headers, door, {
        address: sourceOf(socket).address,
        deadlineMs: options.handshakeTimeoutMs,
        maxJudged: options.maxJudgedAgents,
        onJudging: () => this.sockets.setAside(socket),
      });
    } catch (error) {
      credential = toCulvertError(error);
      this.#tellOfClaims(request, socket);
      // Whoever shows nothing here may prove himself inside.
      if (door.innerTls === "never" || credential.code !== "unauthenticated") return credential;
    }
    const objection = door.objection(sourceOf(socket).address);
    if (objection !== undefined) return objection;
    const origin = originFault(request.rawHeaders, options.agentAllowedOrigins);
    if (origin !== undefined) return origin;
    const named = this.#deps.doorNamed?.(nameIn(request.headers.host ?? ""));
    if (named !== undefined && named !== door) return otherName(named.tunnels.name);
    if (request.url.split("?", 1)[0] !== options.agentPath) return "path";
    const offered = (request.headers["sec-websocket-protocol"] ?? "").split(",").map((name) => name.trim());
    if (!request.ws || !offered.includes(SUBPROTOCOL)) return "upgrade";
    // Links that are open may still get another carrier; what a hello wants is known behind the upgrade only.
    if (draining() && links.size === 0) return new CulvertError("draining", "this server is shutting down");
    this.#admit(request, socket, door, credential);
    return undefined;
  }

  /** Each request finds its own: several may come over one connection, with another Host each. */
  #findDoor(request: Asked, socket: Socket): AgentDoor | CulvertError | Answer {
    const found = this.#deps.doorOf?.(request, sourceOf(socket).address) ?? this.#doors.get(socket);
    if (found === undefined) return new CulvertError("internal", "a connection without a door");
    if ("tunnels" in found) this.#doors.set(socket, found);
    else this.#doors.delete(socket);
    return found;
  }

  /** Once is enough: it is one and the same balancer for all. */
  #tellOfClaims({ headers }: Asked, socket: Socket): void {
    const header = this.#hasToldOfClaims ? undefined : claimedCertificate(headers);
    if (header === undefined) return;
    this.#hasToldOfClaims = true;
    this.#deps.log.warn(
      { remote: remoteOf(socket), header },
      "a header that tells of a client certificate is not believed: agents behind it need a token or inner TLS",
    );
  }

  /** Those of whom nobody knows who they are, are few, and have little time. */
  #admit({ headers }: Asked, socket: Socket, door: AgentDoor, credential: Credential | CulvertError): void {
    if (!(credential instanceof CulvertError)) {
      this.#arrivals.set(socket, { credential });
      return;
    }
    const anonymous = new HandshakeTime(socket, this.#deps.options.handshakeTimeoutMs);
    const { address } = sourceOf(socket);
    this.#deps.beforeHello.enter(door.tunnels.name, address, anonymous, () => socket.destroy());
    this.#arrivals.set(socket, { credential, anonymous, shown: shownBy(socket, headers, door) });
  }

  #onClientError(error: NodeJS.ErrnoException, socket: Duplex): void {
    if (socket.writableEnded) return; // has been answered; what still comes is an error each time
    const answer = socket.writable ? notUnderstood(error, this.#deps.options.headerLimit) : undefined;
    if (answer === undefined) {
      socket.destroy();
      return;
    }
    this.sockets.stopWaiting(socket);
    this.#tell(socket as Socket, answer, { headers: {} });
    answerRaw(socket, answer);
  }
}

function tlsPeerOf(socket: Socket): TlsPeer {
  return IncomingConnection.of(socket) ?? { socket, verifiedBy: undefined };
}
