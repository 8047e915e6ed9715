import { TLSSocket } from "node:tls";
import type { FastifyInstance, FastifyReply, FastifyRequest } from "fastify";
import type { WebSocket } from "ws";
import { unwatchForEnd, watchForEnd } from "../../shared/http/connection.ts";
import type { IncomingConnection } from "../../shared/listen/incoming-connection.ts";
import { CulvertError, toCulvertError } from "../../shared/outcomes.ts";
import { claimedBy } from "../../shared/tls/identity.ts";
import { SUBPROTOCOL } from "../../shared/wire/handshake.ts";
import { logClosedEarly } from "../listeners/open-port.ts";
import { PortConnections } from "../listeners/port-connections.ts";
import { connectionOf, requestsTo, upgradeApp, webSocketHandler } from "../listeners/upgrade-app.ts";
import type { ListenerName } from "../metrics/server-metrics.ts";
import type { Credential } from "../tunnels/links.ts";
import { type Admission, HandshakeDeadline, joinHellos } from "./admission.ts";
import { recordRefusal } from "./agent-record.ts";
import { attach } from "./attach.ts";
import { type AgentHost, authenticateAgent, hostOf } from "./authenticate-agent.ts";
import type { AgentsContext } from "./context.ts";
import {
  answerRaw,
  answerTo,
  callersRequest,
  claimedCertificate,
  hostName,
  isDoctorRequest,
  noHttp2,
  noUpgrade,
  originFault,
  otherName,
  otherPath,
  parseRefusal,
  refusalKind,
  requestFault,
  shownCredential,
} from "./refusal.ts";

/** The settings in which the agents' ports differ. */
interface AgentPort {
  /** For the log and the metrics of connections that are dropped. */
  readonly listener: ListenerName;
  /** Present on the port in clear: finds the virtual host of each request, or throws a refusal. */
  readonly hostOf?: (name: string, address: string) => AgentHost;
  /** Present on the TLS port: serves konnectivity-agents, whose protocol is HTTP/2. */
  readonly serveHttp2?: ServeHttp2 | undefined;
  /** Present on the TLS port: finds the virtual host for a name in the ClientHello. */
  readonly hostNamed?: (name: string) => AgentHost | undefined;
}

type AgentConnection = IncomingConnection<AgentHost>;

/** Serves a connection whose client speaks HTTP/2, and whose preface is unread (server/konnectivity-agents). */
export type ServeHttp2 = (connection: AgentConnection, port: PortConnections, context: AgentsContext) => void;

/** Names of the decorations in which hooks keep what they have found out about a request. */
const CREDENTIAL = "credential";
const ADMISSION = "admission";

/**
 * The agents' HTTP side of one port: admission, then the WebSocket. It reads one request of each connection after its
 * TLS handshake, if there is one.
 *
 * ```
 *  take ─▶ one request ─▶ hooks, from the top of this class to its end ─▶ upgrade ─▶ attach (attach.ts)
 *                └──────────┴─ what they throw ─▶ one HTTP answer, then the end of the connection
 * ```
 */
export class UpgradePort {
  readonly connections: PortConnections;
  readonly #own: AgentPort;
  readonly #context: AgentsContext;
  #hasLoggedClaim = false;

  private constructor(app: FastifyInstance, own: AgentPort, context: AgentsContext) {
    this.#own = own;
    this.#context = context;
    const { options, waiting, turns } = context;
    this.connections = new PortConnections(
      { listener: own.listener, deadlineMs: options.handshakeTimeoutMs, waiting, turns },
      {
        ...requestsTo(app),
        onHttp2: (connection) => this.#onHttp2(connection as AgentConnection),
        onClientError: (error, connection) => this.#onClientError(error, connection as AgentConnection),
        onClosedEarly: (connection) => this.#onClosedEarly(connection as AgentConnection),
      },
      context,
    );
  }

  static async create(own: AgentPort, context: AgentsContext): Promise<UpgradePort> {
    const app = await upgradeApp((error, request) =>
      port.#refuse(error, connectionOf<AgentHost>(request), request.headers),
    );
    const port = new UpgradePort(app, own, context);
    // `culvert doctor` compares the agent's clock with it.
    app.websocketServer.on("headers", (headers) => headers.push(`Date: ${new Date().toUTCString()}`));
    app.decorateRequest(CREDENTIAL);
    app.decorateRequest(ADMISSION);
    // In the order of what an unauthenticated peer may learn: nothing of path, method and subprotocol, unless it may
    // still authenticate by inner TLS.
    app.addHook("onRequest", port.#requireWellFormed);
    app.addHook("onRequest", port.#findHost);
    app.addHook("onRequest", port.#authenticate);
    app.addHook("onRequest", port.#requirePermitted);
    app.addHook("onRequest", port.#requireUpgrade);
    app.route({
      method: "GET",
      url: context.options.agentPath,
      preHandler: port.#admit,
      wsHandler: webSocketHandler(port.#attach),
      handler: () => {
        throw noUpgrade(); // `#requireUpgrade` has refused what would come here
      },
    });
    await app.ready();
    return port;
  }

  /** Takes a connection after its TLS handshake, or one of the port in clear. */
  take(connection: AgentConnection): void {
    this.connections.take(connection);
  }

  readonly #requireWellFormed = async (request: FastifyRequest): Promise<void> => {
    watchForEnd(connectionOf(request).socket);
    const fault = requestFault(request.raw, request.ws);
    if (fault !== undefined) throw fault;
  };

  /** On the TLS port the ClientHello has named the virtual host; on the port in clear the request does. */
  readonly #findHost = async (request: FastifyRequest): Promise<void> => {
    const connection = connectionOf<AgentHost>(request);
    connection.host = this.#own.hostOf?.(hostName(request), connection.source.address) ?? connection.host;
  };

  /** The agent's credential, or why it has none: then it has to prove itself by inner TLS. */
  readonly #authenticate = async (request: FastifyRequest): Promise<void> => {
    const { handshakeTimeoutMs: deadlineMs, maxTokenVerifications: most } = this.#context.options;
    const connection = connectionOf<AgentHost>(request);
    const host = hostOf(connection);
    const { address } = connection.source;
    const onVerifying = (): void => this.connections.setAside(connection);
    const bounds = { address, deadlineMs, most, onVerifying };
    let credential: Credential | CulvertError;
    try {
      credential = await authenticateAgent(connection, request.headers, host, bounds);
    } catch (error) {
      credential = toCulvertError(error);
      this.#logClaim(request, connection);
      if (host.innerTls === "never" || credential.code !== "unauthenticated") throw credential;
    }
    request.setDecorator(CREDENTIAL, credential);
  };

  /** This agent may come from there, by this name, and is no page of a browser. */
  readonly #requirePermitted = async (request: FastifyRequest): Promise<void> => {
    const connection = connectionOf<AgentHost>(request);
    const host = hostOf(connection);
    const named = this.#own.hostNamed?.(hostName(request));
    const refusal =
      host.objection(connection.source.address) ??
      originFault(request.raw.rawHeaders, this.#context.options.agentAllowedOrigins) ??
      (named !== undefined && named !== host ? otherName(named.tunnels.name) : undefined);
    if (refusal !== undefined) throw refusal;
  };

  readonly #requireUpgrade = async ({ method, originalUrl, headers, ws }: FastifyRequest): Promise<void> => {
    const { agentPath } = this.#context.options;
    if (method === "CONNECT") throw callersRequest();
    if (originalUrl.split("?", 1)[0] !== agentPath) throw otherPath(agentPath);
    const offered = (headers["sec-websocket-protocol"] ?? "").split(",").map((name) => name.trim());
    if (method !== "GET" || !ws || !offered.includes(SUBPROTOCOL)) throw noUpgrade();
  };

  /** Carries the connection to the server that has its link, or gives the agent a place here. */
  readonly #admit = async (request: FastifyRequest, reply: FastifyReply): Promise<void> => {
    const { draining, links, carrying } = this.#context;
    // Links that are open may get another carrier; only the hello says whether this is one.
    if (draining() && links.size === 0) throw new CulvertError("draining", "this server is shutting down");
    const connection = connectionOf<AgentHost>(request);
    const admission = this.#admissionOf(request, connection);
    const upgrade = { url: request.originalUrl, rawHeaders: request.raw.rawHeaders };
    const carryOn = await carrying?.ask({ request: upgrade, connection, ...admission });
    unwatchForEnd(connection.socket);
    if (carryOn === undefined) {
      joinHellos(admission, connection);
      request.setDecorator(ADMISSION, admission);
      return;
    }
    this.connections.leaveWaiting(connection);
    carryOn();
    reply.hijack();
  };

  /** The result of the hooks. An unauthenticated carrier gets a deadline, and one of a bounded number of places. */
  #admissionOf(request: FastifyRequest, connection: AgentConnection): Admission {
    const { options, beforeHello } = this.#context;
    const { socket, source } = connection;
    const host = hostOf(connection);
    const credential = request.getDecorator<Credential | CulvertError>(CREDENTIAL);
    if (!(credential instanceof CulvertError)) return { host, credential };
    const deadline = new HandshakeDeadline(socket, options.handshakeTimeoutMs);
    this.connections.setAside(connection); // or it would count twice, and might have to make room for itself
    beforeHello.enter(host.tunnels.name, source.address, deadline, () => socket.destroy());
    return { host, credential, deadline, shown: shownCredential(socket, request.headers, host) };
  }

  readonly #attach = (ws: WebSocket, request: FastifyRequest): void => {
    const connection = connectionOf<AgentHost>(request);
    const admission = request.getDecorator<Admission>(ADMISSION);
    this.connections.leaveWaiting(connection);
    void attach(ws, connection, admission, this.#context);
  };

  // ── refusals ─────────────────────────────────────────────────────────────────────────────────────────────────────

  /** A fault of our own is an answer to this request as well, and ends no other connection. */
  #refuse(refusal: CulvertError, connection: AgentConnection, headers: FastifyRequest["headers"]): void {
    const { log, throttledLog, audit } = this.#context;
    const { socket, remote, source, host } = connection;
    unwatchForEnd(socket);
    this.connections.leaveWaiting(connection);
    const answer = answerTo(refusal, host, headers.authorization);
    const { status, sentence: reason, level } = answer;
    const cluster = host?.tunnels.name ?? "";
    const claimed = status === 401 || audit() !== undefined ? claimedBy(socket) : undefined;
    const refused = {
      cluster,
      remote,
      by: { claimed },
      code: status,
      rule: refusal.code,
      reason,
      from: source.address,
      fault: refusal.fault,
    };
    recordRefusal(refused, this.#context);
    const certificate = status === 401 ? claimed : undefined;
    const detail = refusal.cause instanceof Error ? refusal.cause.message : undefined;
    const more = { ...(certificate && { certificate }), ...(detail && { detail }) };
    const line = { remote, cluster, code: status, reason, ...more };
    const shown = shownCredential(socket, headers, host);
    if (isDoctorRequest(headers, shown)) log.debug(line, "a doctor's request without a credential was refused");
    else throttledLog.write(level, line, "agent refused", { kind: refusalKind(status, shown) });
    answerRaw(socket, answer);
  }

  #onHttp2(connection: AgentConnection): void {
    const { serveHttp2 } = this.#own;
    if (serveHttp2 === undefined) this.#refuse(noHttp2(), connection, {});
    else serveHttp2(connection, this.connections, this.#context);
  }

  #onClientError(error: NodeJS.ErrnoException, connection: AgentConnection): void {
    const { socket } = connection;
    if (socket.writableEnded) return; // it is answered; each further byte is another error
    const refusal = socket.writable ? parseRefusal(error, this.#context.options.headerLimit) : undefined;
    if (refusal === undefined) socket.destroy();
    else this.#refuse(refusal, connection, {});
  }

  #onClosedEarly({ socket, remote, host }: AgentConnection): void {
    if (!(socket instanceof TLSSocket)) return;
    logClosedEarly({ listener: "agents", cluster: host?.tunnels.name ?? "", remote, socket }, this.#context);
  }

  /** Logs once that a balancer passes certificates on, which is never believed. */
  #logClaim({ headers }: FastifyRequest, { remote }: AgentConnection): void {
    const header = this.#hasLoggedClaim ? undefined : claimedCertificate(headers);
    if (header === undefined) return;
    this.#hasLoggedClaim = true;
    this.#context.log.warn(
      { remote, header },
      "a header that names a client certificate is not believed: agents behind it need a token or inner TLS",
    );
  }
}
