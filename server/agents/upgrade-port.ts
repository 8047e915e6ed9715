import type { IncomingMessage } from "node:http";
import { TLSSocket } from "node:tls";
import { WebSocketServer } from "ws";
import { unwatchForEnd, watchForEnd } from "../../shared/http/connection.ts";
import { UPGRADES } from "../../shared/link/accept.ts";
import type { RequestHeader } from "../../shared/listen/first-request.ts";
import type { IncomingConnection } from "../../shared/listen/incoming-connection.ts";
import { CulvertError, toCulvertError } from "../../shared/outcomes.ts";
import { claimedBy } from "../../shared/tls/identity.ts";
import { SUBPROTOCOL } from "../../shared/wire/handshake.ts";
import { logClosedEarly } from "../listeners/open-port.ts";
import { PortConnections, type WaitingConnections } from "../listeners/port-connections.ts";
import type { ListenerName } from "../metrics/server-metrics.ts";
import type { ServerOptions } from "../options/options.ts";
import type { Credential } from "../tunnels/links.ts";
import { type Admission, type AttachDeps, attach, takePlace } from "./attach.ts";
import { HandshakeDeadline, type UnauthenticatedCarriers } from "./attach-inside.ts";
import { type AgentHost, authenticateAgent } from "./authenticate-agent.ts";
import type { Carrying } from "./carrying.ts";
import {
  type AgentAnswer,
  answerRaw,
  answerTo,
  CALLER,
  claimedCertificate,
  hostName,
  isDoctorRequest,
  NO_UPGRADE,
  originFault,
  otherName,
  otherPath,
  parseErrorAnswer,
  refusalKind,
  requestFault,
  shownCredential,
} from "./refusal.ts";

/** Bytes that follow an upgrade are still unread in the socket. */
const NO_HEAD = Buffer.alloc(0);

/** Why a request gets no tunnel. */
type UpgradeRefusal = CulvertError | AgentAnswer;

export interface UpgradeDeps extends Omit<AttachDeps, "host" | "cluster"> {
  readonly options: AttachDeps["options"] &
    Pick<ServerOptions, "agentPath" | "agentAllowedOrigins" | "headerLimit" | "maxWaitingConnections">;
  /** The waiting connections of all TCP ports together. */
  readonly waiting: WaitingConnections;
  /** Unauthenticated carriers of all ports together whose hello has not come. */
  readonly beforeHello: UnauthenticatedCarriers;
  /** Present on the port in clear: finds the virtual host of each request. */
  readonly hostOf?: (name: string, address: string) => AgentHost | CulvertError | AgentAnswer;
  /** Present on the TLS port: the virtual host that a name in the ClientHello would lead to. */
  readonly hostNamed?: (name: string) => AgentHost | undefined;
  /** Present with a directory: carries resumes of other servers' links to these. */
  readonly carrying?: Pick<Carrying, "ask" | "size"> | undefined;
  /** For the log and the metrics of connections that are dropped. */
  readonly listener: ListenerName;
}

type RequestKind = "upgrade" | "connect" | "other";

type AgentConnection = IncomingConnection<AgentHost>;

/**
 * The agents' HTTP side of one port: admission, then the WebSocket. It reads one request of each connection after its
 * TLS handshake, if there is one.
 *
 * ```
 *  take ─▶ read the request ─▶ check, authenticate ─▶ upgrade ─▶ attach (attach.ts)
 *                └──────────────────────┴─▶ one HTTP answer, then the end of the connection
 * ```
 */
export class UpgradePort {
  readonly connections: PortConnections;
  readonly #upgrades = new WebSocketServer({ noServer: true, ...UPGRADES });
  readonly #deps: UpgradeDeps;
  #hasLoggedClaim = false;

  constructor(deps: UpgradeDeps) {
    this.#deps = deps;
    const { headerLimit, handshakeTimeoutMs: deadlineMs, maxWaitingConnections: maxWaiting } = deps.options;
    const { listener, metrics, throttledLog, waiting, turns } = deps;
    // `culvert doctor` compares the agent's clock with it.
    this.#upgrades.on("headers", (headers) => headers.push(`Date: ${new Date().toUTCString()}`));
    this.connections = new PortConnections(
      { listener, metrics, throttledLog, headerLimit, deadlineMs, maxWaiting, waiting, turns },
      {
        onConnect: (request, connection) => this.#onRequest(request, connection as AgentConnection, "connect"),
        onUpgrade: (request, connection) => this.#onRequest(request, connection as AgentConnection, "upgrade"),
        onRequest: (request, connection) => this.#onRequest(request, connection as AgentConnection, "other"),
        onClientError: (error, connection) => this.#onClientError(error, connection as AgentConnection),
        onClosedEarly: (connection) => this.#onClosedEarly(connection as AgentConnection),
      },
    );
  }

  /** Takes a connection after its TLS handshake, or one of the port in clear. */
  take(connection: IncomingConnection<AgentHost>): void {
    this.connections.take(connection);
  }

  #onClosedEarly({ socket, remote, host }: AgentConnection): void {
    if (!(socket instanceof TLSSocket)) return;
    logClosedEarly({ listener: "agents", cluster: host?.tunnels.name ?? "", remote, socket }, this.#deps);
  }

  /** What is thrown is the answer to this request, a fault of our own as well, and ends no other connection. */
  #onRequest(request: RequestHeader, connection: AgentConnection, kind: RequestKind): void {
    this.#serve(request, connection, kind).catch((error: unknown) => {
      this.#refuse(connection, request, toCulvertError(error));
    });
  }

  /** `request` is an `IncomingMessage` if it is an upgrade. */
  async #serve(request: RequestHeader, connection: AgentConnection, kind: RequestKind): Promise<void> {
    const { socket } = connection;
    watchForEnd(socket);
    const admitted = await this.#admit(request, connection, kind);
    const isAdmitted = "credential" in admitted;
    const carryOn = isAdmitted ? await this.#deps.carrying?.ask({ request, connection, ...admitted }) : undefined;
    unwatchForEnd(socket);
    if (!isAdmitted) {
      this.#refuse(connection, request, admitted);
      return;
    }
    if (carryOn !== undefined) {
      this.connections.leaveWaiting(connection);
      carryOn();
      return;
    }
    takePlace(admitted, connection);
    const { host } = admitted;
    this.#upgrades.handleUpgrade(request as IncomingMessage, socket, NO_HEAD, (ws) => {
      this.connections.leaveWaiting(connection);
      void attach(ws, connection, admitted, { ...this.#deps, host, cluster: host.tunnels });
    });
  }

  #refuse(connection: AgentConnection, { headers }: Pick<RequestHeader, "headers">, refusal: UpgradeRefusal): void {
    this.connections.leaveWaiting(connection);
    const isError = refusal instanceof CulvertError;
    const answer = isError ? answerTo(refusal, connection.host, headers.authorization) : refusal;
    const detail = isError && refusal.cause instanceof Error ? refusal.cause.message : undefined;
    this.#logRefused(connection, answer, headers, detail);
    answerRaw(connection.socket, answer);
  }

  #logRefused(
    { socket, remote, source, host }: AgentConnection,
    { status, sentence: reason, level }: AgentAnswer,
    headers: RequestHeader["headers"],
    detail: string | undefined,
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
   * Whether this is the upgrade of an agent. Authentication comes before the checks of path, method and subprotocol:
   * an unauthenticated peer learns nothing of these, unless it may still authenticate by inner TLS.
   */
  async #admit(
    request: RequestHeader,
    connection: AgentConnection,
    kind: RequestKind,
  ): Promise<Admission | UpgradeRefusal> {
    const { options, links, draining, hostNamed } = this.#deps;
    const fault = requestFault(request, kind === "upgrade");
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
    const named = hostNamed?.(hostName(request));
    if (named !== undefined && named !== host) return otherName(named.tunnels.name);
    if (kind === "connect") return CALLER;
    if (request.url?.split("?", 1)[0] !== options.agentPath) return otherPath(options.agentPath);
    const offered = (request.headers["sec-websocket-protocol"] ?? "").split(",").map((name) => name.trim());
    if (kind !== "upgrade" || !offered.includes(SUBPROTOCOL)) return NO_UPGRADE;
    // Links that are open may get another carrier; only the hello says whether this is one.
    if (draining() && links.size === 0) return new CulvertError("draining", "this server is shutting down");
    if (!(credential instanceof CulvertError)) return { host, credential };
    return { host, credential, ...this.#limitUnauthenticated(request, connection, host) };
  }

  /** On the TLS port the ClientHello has named the virtual host; on the port in clear the request does. */
  #findHost(request: RequestHeader, connection: AgentConnection): AgentHost | CulvertError | AgentAnswer {
    const found = this.#deps.hostOf?.(hostName(request), connection.source.address) ?? connection.host;
    if (found === undefined) return new CulvertError("internal", "a connection without a virtual host");
    connection.host = "tunnels" in found ? found : undefined;
    return found;
  }

  /** Logs once that a balancer passes certificates on, which is never believed. */
  #logClaim({ headers }: RequestHeader, { remote }: AgentConnection): void {
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
    { headers }: RequestHeader,
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
    this.#refuse(connection, { headers: {} }, answer);
  }
}
