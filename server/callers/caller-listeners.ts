import type { IncomingMessage } from "node:http";
import type { AddressInfo, Socket } from "node:net";
import type { TLSSocket } from "node:tls";
import { Penalties } from "../../shared/basics/rate-limit.ts";
import { TurnQueue } from "../../shared/basics/timers.ts";
import type { Acceptor } from "../../shared/listen/acceptor.ts";
import { IncomingConnection } from "../../shared/listen/incoming-connection.ts";
import type { VirtualHosts } from "../../shared/listen/listeners.ts";
import { CulvertError, printable, toCulvertError } from "../../shared/outcomes.ts";
import type { Clusters } from "../cluster-runtime/clusters.ts";
import type { ClusterVirtualHost, UnixHost } from "../cluster-runtime/virtual-host.ts";
import { logClosedEarly, openTlsPort } from "../listeners/open-port.ts";
import { PortConnections, type PortHandler, type WaitingConnections } from "../listeners/port-connections.ts";
import type { ConnectHeader } from "../listeners/usual-connect.ts";
import type { ClusterTunnels } from "../tunnels/cluster-tunnels.ts";
import type { ServerContext } from "../tunnels/context.ts";
import { authenticateCaller, authenticateWithoutToken, type CallerHost, challenges } from "./authenticate.ts";
import type { CallerEnd } from "./caller-end.ts";
import { serveConnect } from "./connect.ts";
import { traceparentIn } from "./connect-trace.ts";
import type { HttpPort } from "./http-port.ts";
import type { CallerSession } from "./http2-session.ts";
import * as reply from "./reply.ts";
import { UnixListener } from "./unix-listener.ts";

/** The callers' side: the TLS port and the unix sockets, and the connections of each virtual host and unix socket. */
export class CallerListeners {
  readonly #waiting: WaitingConnections;
  readonly #context: ServerContext;
  readonly #callers = new Map<CallerHost, CallersOfHost>();
  /** Clusters that are not served any more. */
  readonly #closed = new WeakSet<ClusterTunnels>();
  readonly #unix = new Map<UnixHost, UnixListener>();
  #port: Acceptor | undefined;
  #http: HttpPort | undefined;

  /** `waiting`: the waiting connections of all TCP ports; those of a unix socket are bounded by themselves. */
  constructor(waiting: WaitingConnections, context: ServerContext) {
    this.#waiting = waiting;
    this.#context = context;
  }

  /** Opens the callers' TLS port; rejects with a `ConfigError`. */
  async openPort(hosts: VirtualHosts<ClusterVirtualHost>): Promise<AddressInfo> {
    const { serverPort, serverBindAddress, serverProxyProtocol, frontendKeepaliveMs } = this.#context.options;
    const { listener, address } = await openTlsPort(
      {
        name: "callers",
        hosts,
        port: serverPort,
        option: "--server-port",
        host: serverBindAddress,
        hostOption: "--server-bind-address",
        proxyProtocol: serverProxyProtocol,
        keepaliveMs: frontendKeepaliveMs,
        protocols: ["h2", "http/1.1"],
        onConnection: (connection) => this.accept(connection.host, connection),
      },
      this.#context,
    );
    this.#port = listener;
    return address;
  }

  /** Takes a connection after its TLS handshake, or one of a unix socket, and reads its request. */
  accept(host: CallerHost, connection: IncomingConnection): void {
    if (this.#closed.has(host.tunnels)) {
      connection.socket.destroy(); // the cluster was removed during the handshake
      return;
    }
    this.#callersOf(host).connections.take(connection);
  }

  #callersOf(host: CallerHost): CallersOfHost {
    let callers = this.#callers.get(host);
    if (callers === undefined) {
      callers = new CallersOfHost(host, this.#waiting, this.#context);
      this.#callers.set(host, callers);
    }
    return callers;
  }

  /** Opens the HTTP proxy, which is loaded now; rejects with a `ConfigError`. */
  async openHttp(clusters: Clusters): Promise<AddressInfo> {
    const { HttpPort } = await import("./http-port.ts");
    const callersOf = (host: ClusterVirtualHost) => this.#callersOf(host);
    const port = new HttpPort({ waiting: this.#waiting, clusters, callersOf }, this.#context);
    const address = await port.open();
    this.#http = port;
    return address;
  }

  /**
   * Opens a cluster's unix socket; `option` names the flag or the document and key. Rejects with a `ConfigError` if the
   * path cannot be used now; it is tried again until `closeUnix`.
   */
  async openUnix(host: UnixHost, path: string, option: string): Promise<void> {
    const onSocket = (socket: Socket) => this.#acceptUnix(host, socket);
    const listener = new UnixListener({ path, option, onSocket }, this.#context);
    this.#unix.set(host, listener); // from now on it can be closed
    await listener.open();
  }

  #acceptUnix(host: UnixHost, socket: Socket): void {
    const connection = new IncomingConnection(socket);
    connection.handedOn(socket);
    this.accept(host, connection);
  }

  /** Accepts no new connections on the unix socket. */
  closeUnix(host: UnixHost): void {
    void this.#unix.get(host)?.close();
    this.#unix.delete(host);
  }

  /** The TCP ports, for readiness. */
  portStates(): { readonly name: string; readonly up: boolean }[] {
    const ports = Object.entries({ callers: this.#port, http: this.#http?.listener });
    return ports.flatMap(([name, port]) => (port === undefined ? [] : [{ name, up: port.listening }]));
  }

  /** Whether callers reach the unix sockets, and if not, why. */
  unixStates(): { readonly up: boolean; readonly problem: string | undefined }[] {
    return [...this.#unix.values()].map(({ state }) => state);
  }

  /** The number of connections whose request has not come, those in their handshake included. */
  get waiting(): number {
    let waiting = (this.#port?.handshakes ?? 0) + (this.#http?.waiting ?? 0);
    for (const { connections } of this.#callers.values()) waiting += connections.waiting;
    return waiting;
  }

  /** Stops accepting connections. Connections in their handshake are ended, unless `mayFinish` is set. */
  stopAccepting(which: { readonly mayFinish?: boolean } = {}): void {
    this.#port?.stopAccepting(which);
    this.#http?.listener?.stopAccepting(which);
    for (const listener of this.#unix.values()) void listener.close();
  }

  /** Accepts no new connections, and ends those without a request. */
  drain(): void {
    this.stopAccepting();
    this.#http?.connections.destroyWaiting();
    for (const callers of this.#callers.values()) callers.drain();
  }

  /** Resolves when the last connection has closed, or after `deadlineMs`. */
  async empty(deadlineMs: number): Promise<void> {
    await Promise.all([...this.#callers.values()].map(({ connections }) => connections.empty(deadlineMs)));
  }

  /** Resets every connection, and ends those in their handshake. */
  resetAll(): void {
    for (const { connections } of this.#callers.values()) connections.resetAll();
    this.#port?.destroyAll();
    this.#http?.listener?.destroyAll();
  }

  /** Resolves when the unix sockets are closed. */
  async close(): Promise<void> {
    await Promise.all([...this.#unix.values()].map((listener) => listener.close()));
  }

  /** Ends the connections of one cluster: no new ones, then waits for `ended`, then resets the rest after `restMs`. */
  async closeCluster(tunnels: ClusterTunnels, ended: Promise<unknown>, restMs: number): Promise<void> {
    this.#closed.add(tunnels);
    const callers = [...this.#callers].filter(([host]) => host.tunnels === tunnels);
    for (const [, each] of callers) each.drain();
    await ended;
    await Promise.all(
      callers.map(async ([host, { connections }]) => {
        await connections.empty(restMs);
        connections.resetAll();
        this.#callers.delete(host);
      }),
    );
  }
}

/** A caller that floods and reconnects at once is one flood. */
const AFTER_VIOLATION = "an HTTP/2 connection of this caller was a flood, or broke the protocol: connect again";

/** The connections of one virtual host or unix socket: reads one CONNECT of each, and refuses other requests. */
class CallersOfHost implements PortHandler {
  /** Every connection that has not closed. */
  readonly connections: PortConnections;
  readonly #host: CallerHost;
  readonly #context: ServerContext;
  readonly #sessions = new Set<CallerSession>();
  /** Of HTTP/2, by the names of callers. */
  readonly #violations = new Penalties();

  constructor(host: CallerHost, waiting: WaitingConnections, context: ServerContext) {
    const isUnix = host.kind === "unix";
    this.#host = host;
    this.#context = context;
    const options = {
      listener: isUnix ? "unix" : "callers",
      deadlineMs: context.options.headerTimeoutMs,
      waiting: isUnix ? undefined : waiting,
      // Under a flood of one cluster the connections of other clusters still have their turns.
      turns: new TurnQueue(),
    } as const;
    this.connections = new PortConnections(options, this, context);
  }

  onUsualConnect(header: ConnectHeader, connection: IncomingConnection): void {
    this.onConnect(header, connection);
  }

  onConnect(request: ConnectHeader, connection: IncomingConnection): void {
    const fault = reply.faultIn(request);
    if (fault !== undefined) this.#refuse(connection, fault);
    else
      this.serve(new reply.HttpCaller(connection, this.#host, this.#context), request.url ?? "", request, connection);
  }

  /** Serves the one request of a connection, which is for this target. */
  serve(caller: CallerEnd, authority: string, { headers }: ConnectHeader, connection: IncomingConnection): void {
    if (!this.connections.leaveWaiting(connection)) return;
    const host = this.#host;
    const verify = () => authenticateCaller(host, connection, headers, this.#context);
    void serveConnect(caller, authority, { host, verify, traceparent: traceparentIn(headers) }, this.#context);
  }

  /** Only a caller that has proved who it is gets a session. */
  onHttp2(connection: IncomingConnection): void {
    try {
      const { name } = authenticateWithoutToken(this.#host, connection);
      this.#context.files.requireRoom("overloaded");
      const waitMs = this.#violations.leftMs(name);
      if (waitMs > 0) throw new CulvertError("overloaded", `${AFTER_VIOLATION} in ${Math.ceil(waitMs / 1_000)} s`);
      this.#serveHttp2(connection, name).catch((error: unknown) => {
        this.#context.log.error({ err: error }, "a caller over HTTP/2 cannot be served");
        connection.socket.destroy();
      });
    } catch (error) {
      if (!this.connections.leaveWaiting(connection)) return;
      const caller = new reply.PrefaceCaller(connection, this.#host, this.#context);
      void serveConnect(caller, "", { host: this.#host, verify: () => Promise.reject(error) }, this.#context);
    }
  }

  /** The code for HTTP/2 is loaded when the first caller that speaks it comes. */
  async #serveHttp2(connection: IncomingConnection, caller: string): Promise<void> {
    const { CallerSession } = await import("./http2-session.ts");
    if (!this.connections.leaveWaiting(connection)) return; // it has ended meanwhile
    const onViolation = () => this.#violations.add(caller);
    const session = new CallerSession(connection, this.#host, onViolation, this.#context);
    this.#sessions.add(session);
    connection.socket.once("close", () => this.#sessions.delete(session));
  }

  /** Ends the connections without a request; those of HTTP/2 end with their last CONNECT. */
  drain(): void {
    this.connections.destroyWaiting();
    for (const session of this.#sessions) session.close();
  }

  onUpgrade(request: IncomingMessage, connection: IncomingConnection): void {
    this.onRequest(request, connection);
  }

  onRequest(request: IncomingMessage, connection: IncomingConnection): void {
    this.#refuse(connection, notConnect(request));
  }

  onLate(connection: IncomingConnection): void {
    this.#refuse(connection, "headerTimeout");
  }

  onClosedEarly({ socket, remote }: IncomingConnection): void {
    const { kind, tunnels } = this.#host;
    if (kind === "unix") return;
    logClosedEarly({ listener: "callers", cluster: tunnels.name, remote, socket: socket as TLSSocket }, this.#context);
  }

  onClientError(error: NodeJS.ErrnoException, connection: IncomingConnection): void {
    const { socket } = connection;
    if (!socket.writable || error.code === "ECONNRESET") socket.destroy();
    else this.#refuse(connection, reply.readFault(error));
  }

  /**
   * Answers a request that is no CONNECT, or no HTTP. Unauthenticated peers read only that they are unauthenticated.
   */
  #refuse(connection: IncomingConnection, refusal: reply.CallerHttpRefusal): void {
    if (!this.connections.leaveWaiting(connection)) return;
    const { socket } = connection;
    try {
      const { name } = authenticateWithoutToken(this.#host, connection);
      reply.refuseRequest(socket, refusal);
      this.#logRefused(connection, reply.sentenceOf(refusal), name);
    } catch (error) {
      const unauthenticated = toCulvertError(error);
      const reason = printable(unauthenticated.message);
      reply.refuseConnect(socket, unauthenticated, challenges(this.#host));
      this.#logRefused(connection, reason);
    }
  }

  #logRefused({ remote }: IncomingConnection, reason: string, caller?: string): void {
    const { kind, tunnels } = this.#host;
    const line = { cluster: tunnels.name, caller, remote: kind === "unix" ? undefined : remote, reason };
    this.#context.throttledLog.write("info", line, "request refused");
  }
}

/** A web proxy is asked for whole URLs (RFC 9112 §3.2.2), as curl does for http:// through `--proxy`. */
function notConnect({ url = "" }: IncomingMessage): reply.CallerHttpRefusal {
  return /^\w+:\/\//.test(url) ? "wholeUrl" : "method";
}
