import type { IncomingMessage } from "node:http";
import { TLSSocket } from "node:tls";
import websocket from "@fastify/websocket";
import { type FastifyInstance, type FastifyReply, type FastifyRequest, fastify } from "fastify";
import { unwatchForEnd, watchForEnd } from "../../shared/http/connection.ts";
import { WITHOUT_SCHEMAS } from "../../shared/http/without-schemas.ts";
import { UPGRADES } from "../../shared/link/accept.ts";
import { IncomingConnection } from "../../shared/listen/incoming-connection.ts";
import { CulvertError, toCulvertError } from "../../shared/outcomes.ts";
import type { Logger } from "../../shared/runtime/logger.ts";
import type { ThrottledLog } from "../../shared/runtime/throttled-log.ts";
import { claimedBy } from "../../shared/tls/identity.ts";
import { SUBPROTOCOL } from "../../shared/wire/handshake.ts";
import { logClosedEarly } from "../listeners/open-port.ts";
import { PortConnections, type WaitingConnections } from "../listeners/port-connections.ts";
import type { RequestHeader } from "../listeners/request-reader.ts";
import type { ListenerName, ServerMetrics } from "../metrics/server-metrics.ts";
import type { ServerOptions } from "../options/options.ts";
import type { Credential } from "../tunnels/links.ts";
import { type Admission, type AttachDeps, attach, takePlace } from "./attach.ts";
import { HandshakeDeadline, type UnauthenticatedCarriers } from "./attach-inside.ts";
import { type AgentHost, authenticateAgent } from "./authenticate-agent.ts";
import type { Carrying } from "./carrying.ts";
import {
  type AgentAnswer,
  type AgentHttpRefusal,
  answerRaw,
  answerTo,
  CALLER,
  challenge,
  claimedCertificate,
  hostName,
  isDoctorRequest,
  originFault,
  otherName,
  parseErrorAnswer,
  refusalKind,
  requestFault,
  shownCredential,
} from "./refusal.ts";

/** Bytes that follow an upgrade are still unread in the socket. */
const NO_HEAD = Buffer.alloc(0);

/** The name of the decoration of a Fastify request that holds its `Admission`. */
const ADMISSION = "admission";

/** Why a request gets no tunnel. */
type UpgradeRefusal = CulvertError | AgentHttpRefusal | AgentAnswer;

export interface UpgradeDeps extends Pick<AttachDeps, "turns" | "innerServers" | "innerHandshakes" | "agentLog"> {
  readonly options: AttachDeps["options"] &
    Pick<ServerOptions, "agentPath" | "agentAllowedOrigins" | "headerLimit" | "maxWaitingConnections">;
  readonly links: AttachDeps["links"];
  readonly servers: AttachDeps["servers"];
  readonly metrics: ServerMetrics;
  readonly log: Logger;
  readonly throttledLog: ThrottledLog;
  /** The waiting connections of all TCP ports together. */
  readonly waiting: WaitingConnections;
  /** Unauthenticated carriers of all ports together whose hello has not come. */
  readonly beforeHello: UnauthenticatedCarriers;
  /** Present on the port in clear: finds the virtual host of each request. */
  readonly hostOf?: (
    request: Pick<IncomingMessage, "rawHeaders">,
    address: string,
  ) => AgentHost | CulvertError | AgentAnswer;
  /** Present on the TLS port: the virtual host that a name in the ClientHello would lead to. */
  readonly hostNamed?: (name: string) => AgentHost | undefined;
  /** Present with a directory: carries resumes of other servers' links to these. */
  readonly carrying?: Pick<Carrying, "ask" | "size"> | undefined;
  /** For the log and the metrics of connections that are dropped. */
  readonly listener: ListenerName;
  draining(): boolean;
}

/** The parts of a request that are checked. */
type CheckedRequest = Pick<IncomingMessage, "headers" | "rawHeaders" | "httpVersion"> &
  Pick<FastifyRequest, "url" | "ws">;

type AgentConnection = IncomingConnection<AgentHost>;

/**
 * The agents' HTTP side of one port: admission, then the WebSocket. It reads one request of each connection after its
 * TLS handshake, if there is one; only upgrades come to Fastify.
 *
 * ```
 *  take ─▶ read the request ─▶ check, authenticate ─▶ upgrade ─▶ attach (attach.ts)
 *                └──────────────────────┴─▶ one HTTP answer, then the end of the connection
 * ```
 */
export class UpgradePort {
  readonly connections: PortConnections;
  readonly #app: FastifyInstance;
  readonly #deps: UpgradeDeps;
  #hasLoggedClaim = false;

  private constructor(deps: UpgradeDeps) {
    this.#deps = deps;
    const { headerLimit, handshakeTimeoutMs: deadlineMs, maxWaitingConnections: maxWaiting } = deps.options;
    const { listener, metrics, throttledLog, waiting, turns } = deps;
    this.connections = new PortConnections(
      { listener, metrics, throttledLog, headerLimit, deadlineMs, maxWaiting, waiting, turns },
      {
        onConnect: (request, connection) => void this.#onOther(request, connection as AgentConnection, CALLER),
        onUpgrade: (request, connection) => this.#onUpgrade(request, connection),
        onRequest: (request, connection) => void this.#onOther(request, connection as AgentConnection),
        onClientError: (error, connection) => this.#onClientError(error, connection as AgentConnection),
        onClosedEarly: (connection) => this.#onClosedEarly(connection as AgentConnection),
      },
    );
    this.#app = fastify({ ...WITHOUT_SCHEMAS, logger: false, exposeHeadRoutes: false, return503OnClosing: false });
  }

  static async create(deps: UpgradeDeps): Promise<UpgradePort> {
    const port = new UpgradePort(deps);
    await port.#build();
    return port;
  }

  async #build(): Promise<void> {
    const { options } = this.#deps;
    await this.#app.register(websocket, {
      options: UPGRADES,
      // The default closes every WebSocket at once; the server drains its tunnels first.
      preClose: (done) => done(),
      errorHandler: (_error, socket) => socket.terminate(),
    });
    this.#app.decorateRequest(ADMISSION, null);
    // Registered after the plugin, whose own hook sets `request.ws`.
    this.#app.addHook("onRequest", this.#onRequest);
    this.#app.get(options.agentPath, { websocket: true }, (ws, request) => {
      const connection = connectionOf(request);
      this.connections.leaveWaiting(connection);
      const admission = request.getDecorator<Admission | null>(ADMISSION);
      const { host } = connection;
      if (admission === null || host === undefined) return ws.terminate(); // the hook has refused it
      void attach(ws, connection, admission, { ...this.#deps, host, cluster: host.tunnels });
    });
    await this.#app.ready();
  }

  /** Takes a connection after its TLS handshake, or one of the port in clear. */
  take(connection: IncomingConnection<AgentHost>): void {
    this.connections.take(connection);
  }

  #onClosedEarly({ socket, remote, host }: AgentConnection): void {
    if (!(socket instanceof TLSSocket)) return;
    logClosedEarly({ listener: "agents", cluster: host?.tunnels.name ?? "", remote, socket }, this.#deps);
  }

  /** To be called after the last carrier: Fastify would end those that are left. */
  async close(): Promise<void> {
    await this.#app.close();
  }

  #onUpgrade(request: IncomingMessage, { socket }: IncomingConnection): void {
    watchForEnd(socket);
    this.#app.server.emit("upgrade", request, socket, NO_HEAD);
  }

  readonly #onRequest = async (request: FastifyRequest, reply: FastifyReply): Promise<void> => {
    const { url, ws } = request;
    const { headers, rawHeaders, httpVersion } = request.raw;
    const connection = connectionOf(request);
    const admitted = await this.#admit({ headers, rawHeaders, httpVersion, url, ws }, connection);
    const carryOn = isAdmission(admitted)
      ? await this.#deps.carrying?.ask({ request: { url, rawHeaders }, connection, ...admitted })
      : undefined;
    unwatchForEnd(connection.socket);
    if (carryOn !== undefined) {
      reply.hijack();
      this.connections.leaveWaiting(connection);
      carryOn();
      return;
    }
    const result = isAdmission(admitted) ? takePlace(admitted, connection) : admitted;
    if (isAdmission(result)) {
      request.setDecorator(ADMISSION, result);
      return;
    }
    reply.hijack();
    this.#refuse(connection, this.#answerTo(result, { headers }, connection), { headers }, result);
  };

  /** Refuses a request that is no upgrade; `answer` is sent unless something else is wrong with it. */
  async #onOther(request: RequestHeader, connection: AgentConnection, answer?: AgentAnswer): Promise<void> {
    watchForEnd(connection.socket);
    const { headers, rawHeaders, httpVersion } = request;
    const url = answer === undefined ? (request.url ?? "") : this.#deps.options.agentPath;
    const admitted = await this.#admit({ headers, rawHeaders, httpVersion, url, ws: false }, connection);
    const refusal = isAdmission(admitted) ? "upgrade" : admitted;
    unwatchForEnd(connection.socket);
    const own = refusal === "upgrade" ? answer : undefined;
    this.#refuse(connection, own ?? this.#answerTo(refusal, { headers }, connection), { headers }, refusal);
  }

  #refuse(
    connection: AgentConnection,
    answer: AgentAnswer,
    request: Pick<CheckedRequest, "headers">,
    refusal: UpgradeRefusal,
  ): void {
    this.connections.leaveWaiting(connection);
    const cause = refusal instanceof CulvertError && refusal.cause instanceof Error ? refusal.cause.message : undefined;
    this.#logRefused(connection, answer, request, cause);
    answerRaw(connection.socket, answer);
  }

  #answerTo(
    refusal: UpgradeRefusal,
    { headers: sent }: Pick<CheckedRequest, "headers">,
    { host }: AgentConnection,
  ): AgentAnswer {
    const isAnswer = typeof refusal !== "string" && !(refusal instanceof CulvertError);
    const answer = isAnswer ? refusal : answerTo(refusal, this.#deps.options.agentPath);
    if (answer.status !== 401 || host === undefined) return answer;
    return { ...answer, headers: { ...answer.headers, "www-authenticate": challenge(host, sent.authorization) } };
  }

  #logRefused(
    { socket, remote, source, host }: AgentConnection,
    { status, sentence: reason, level }: AgentAnswer,
    { headers }: Pick<CheckedRequest, "headers">,
    detail?: string,
  ): void {
    const cluster = host?.tunnels.name ?? "";
    this.#deps.metrics.agentRefused(String(status), { cluster, from: source.address, reason });
    const certificate = status === 401 ? claimedBy(socket) : undefined;
    const more = { ...(certificate && { certificate }), ...(detail && { detail }) };
    const line = { remote, cluster, code: status, reason, ...more };
    const shown = shownCredential(socket, headers, host);
    if (isDoctorRequest(headers, shown))
      this.#deps.log.debug(line, "a doctor's request without a credential was refused");
    else this.#deps.throttledLog.write(level, line, "agent refused", { kind: refusalKind(status, shown) });
  }

  /**
   * Whether this is the upgrade of an agent. The checks are in this order so that an unauthenticated peer learns
   * nothing but that it is unauthenticated.
   */
  async #admit(request: CheckedRequest, connection: AgentConnection): Promise<Admission | UpgradeRefusal> {
    const { options, links, draining, hostNamed } = this.#deps;
    const fault = requestFault(request, request.ws);
    if (fault !== undefined) return fault;
    const { address } = connection.source;
    const host = this.#findHost(request, connection);
    if (!("tunnels" in host)) return host;
    let credential: Credential | CulvertError;
    try {
      credential = await authenticateAgent(connection, request.headers, host, {
        address,
        deadlineMs: options.handshakeTimeoutMs,
        most: options.maxTokenVerifications,
        onVerifying: () => this.connections.setAside(connection),
      });
    } catch (error) {
      credential = toCulvertError(error);
      this.#logClaim(request, connection);
      // An agent that has proved nothing outside may do so by inner TLS.
      if (host.innerTls === "never" || credential.code !== "unauthenticated") return credential;
    }
    const objection = host.objection(address);
    if (objection !== undefined) return objection;
    const origin = originFault(request.rawHeaders, options.agentAllowedOrigins);
    if (origin !== undefined) return origin;
    const named = hostNamed?.(hostName(request.headers.host ?? ""));
    if (named !== undefined && named !== host) return otherName(named.tunnels.name);
    if (request.url.split("?", 1)[0] !== options.agentPath) return "path";
    const offered = (request.headers["sec-websocket-protocol"] ?? "").split(",").map((name) => name.trim());
    if (!request.ws || !offered.includes(SUBPROTOCOL)) return "upgrade";
    // Links that are open may get another carrier; only the hello says whether this is one.
    if (draining() && links.size === 0) return new CulvertError("draining", "this server is shutting down");
    if (!(credential instanceof CulvertError)) return { credential };
    return { credential, ...this.#limitUnauthenticated(request, connection, host) };
  }

  /** On the TLS port the ClientHello has named the virtual host; on the port in clear the request does. */
  #findHost(request: CheckedRequest, connection: AgentConnection): AgentHost | CulvertError | AgentAnswer {
    const found = this.#deps.hostOf?.(request, connection.source.address) ?? connection.host;
    if (found === undefined) return new CulvertError("internal", "a connection without a virtual host");
    connection.host = "tunnels" in found ? found : undefined;
    return found;
  }

  /** Logs once that a balancer passes certificates on, which is never believed. */
  #logClaim({ headers }: CheckedRequest, { remote }: AgentConnection): void {
    const header = this.#hasLoggedClaim ? undefined : claimedCertificate(headers);
    if (header === undefined) return;
    this.#hasLoggedClaim = true;
    this.#deps.log.warn(
      { remote, header },
      "a header that names a client certificate is not believed: agents behind it need a token or inner TLS",
    );
  }

  /** Unauthenticated carriers have a deadline, and their number is bounded. */
  #limitUnauthenticated(
    { headers }: CheckedRequest,
    { socket, source }: AgentConnection,
    host: AgentHost,
  ): Pick<Admission, "deadline" | "shown"> {
    const deadline = new HandshakeDeadline(socket, this.#deps.options.handshakeTimeoutMs);
    this.#deps.beforeHello.enter(host.tunnels.name, source.address, deadline, () => socket.destroy());
    return { deadline, shown: shownCredential(socket, headers, host) };
  }

  #onClientError(error: NodeJS.ErrnoException, connection: AgentConnection): void {
    const { socket } = connection;
    if (socket.writableEnded) return; // it is answered; each further byte is another error
    const answer = socket.writable ? parseErrorAnswer(error, this.#deps.options.headerLimit) : undefined;
    if (answer === undefined) {
      socket.destroy();
      return;
    }
    this.connections.leaveWaiting(connection);
    this.#logRefused(connection, answer, { headers: {} });
    answerRaw(socket, answer);
  }
}

function connectionOf(request: FastifyRequest): AgentConnection {
  const connection = IncomingConnection.of<AgentHost>(request.raw.socket);
  if (connection === undefined) throw new Error("a request on a socket that no listener has accepted");
  return connection;
}

function isAdmission(admitted: Admission | UpgradeRefusal): admitted is Admission {
  return typeof admitted === "object" && "credential" in admitted;
}
