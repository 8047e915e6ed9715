import type { IncomingHttpHeaders, IncomingMessage } from "node:http";
import type { AddressInfo } from "node:net";
import { isLoopback } from "../../shared/address/network.ts";
import { shownAuthority } from "../../shared/address/target.ts";
import { TurnQueue } from "../../shared/basics/timers.ts";
import { presentedToken } from "../../shared/http/bearer.ts";
import { hasUnknownCoding, wholeUrl } from "../../shared/http/forward.ts";
import type { Acceptor } from "../../shared/listen/acceptor.ts";
import { formatEndpoint, type IncomingConnection } from "../../shared/listen/incoming-connection.ts";
import { CulvertError, printable, toCulvertError } from "../../shared/outcomes.ts";
import type { Clusters } from "../cluster-runtime/clusters.ts";
import type { ClusterVirtualHost } from "../cluster-runtime/virtual-host.ts";
import { openPlainPort, openTlsPort } from "../listeners/open-port.ts";
import { PortConnections, type PortHandler, type WaitingConnections } from "../listeners/port-connections.ts";
import type { ServerContext } from "../tunnels/context.ts";
import { TOKEN_CHALLENGES } from "./authenticate.ts";
import type { CallerEnd } from "./caller-end.ts";
import * as reply from "./reply.ts";
import { WholeUrlCaller } from "./whole-url-caller.ts";

/** The callers of one cluster. */
interface Callers {
  readonly connections: PortConnections;
  serve(caller: CallerEnd, authority: string, request: IncomingMessage, connection: IncomingConnection): void;
}

interface HttpPortSurroundings {
  /** The waiting connections of all TCP ports together. */
  readonly waiting: WaitingConnections;
  readonly clusters: Clusters;
  callersOf(host: ClusterVirtualHost): Callers;
}

/**
 * An HTTP proxy for callers, `--http-port` (decision 0059): in clear on a loopback address, over TLS on any other.
 *
 * ```
 *  one request ─▶ its cluster: the server name, Basic CLUSTER:TOKEN, or the only one with tokens ─▶ its callers
 *       └──────────────────────────────┴─▶ refused
 * ```
 */
export class HttpPort implements PortHandler {
  /** Connections whose request has not come. */
  readonly connections: PortConnections;
  readonly #with: HttpPortSurroundings;
  readonly #context: ServerContext;
  #listener: Acceptor | undefined;

  constructor(surroundings: HttpPortSurroundings, context: ServerContext) {
    this.#with = surroundings;
    this.#context = context;
    const { waiting } = surroundings;
    const { headerTimeoutMs: deadlineMs } = context.options;
    const options = { listener: "http", deadlineMs, waiting, turns: new TurnQueue() } as const;
    this.connections = new PortConnections(options, this, context);
  }

  /** Rejects with a `ConfigError`. */
  async open(): Promise<AddressInfo> {
    const { httpPort, httpBindAddress, frontendKeepaliveMs } = this.#context.options;
    const port = {
      name: "http",
      port: httpPort,
      option: "--http-port",
      host: httpBindAddress,
      hostOption: "--http-bind-address",
      proxyProtocol: "off",
      keepaliveMs: frontendKeepaliveMs,
      onConnection: (connection: IncomingConnection) => this.connections.take(connection),
    } as const;
    const isPlain = isLoopback(httpBindAddress);
    if (isPlain && this.#hostsWithTokens().length === 0) this.#context.log.warn(NO_TOKENS);
    const { listener, address } = isPlain
      ? await openPlainPort({ ...port, trustedCidrs: [] }, this.#context)
      : await openTlsPort({ ...port, hosts: this.#with.clusters.callerHosts, protocols: ["http/1.1"] }, this.#context);
    this.#listener = listener;
    return address;
  }

  get listener(): Acceptor | undefined {
    return this.#listener;
  }

  /** The number of connections whose request has not come, those in their handshake included. */
  get waiting(): number {
    return (this.#listener?.handshakes ?? 0) + this.connections.waiting;
  }

  onConnect(request: IncomingMessage, connection: IncomingConnection): void {
    const make = (host: ClusterVirtualHost) => new reply.HttpCaller(connection, host, this.#context);
    this.#serve(request.url ?? "", request, connection, make);
  }

  onRequest(request: IncomingMessage, connection: IncomingConnection): void {
    const url = wholeUrl(request.url ?? "");
    if (url === undefined) this.#refuse(connection, "notForProxy");
    else if (hasUnknownCoding(request)) this.#refuse(connection, "unknownCoding");
    else {
      const make = (host: ClusterVirtualHost) => new WholeUrlCaller(request, url, connection, host, this.#context);
      this.#serve(url.target, request, connection, make);
    }
  }

  onUpgrade(request: IncomingMessage, connection: IncomingConnection): void {
    this.onRequest(request, connection);
  }

  #serve(
    authority: string,
    request: IncomingMessage,
    connection: IncomingConnection,
    make: (host: ClusterVirtualHost) => CallerEnd,
  ): void {
    const fault = reply.faultIn(request);
    if (fault !== undefined) {
      this.#refuse(connection, fault);
      return;
    }
    try {
      const host = this.#hostFor(request.headers, connection);
      const callers = this.#with.callersOf(host);
      this.connections.handOver(connection, callers.connections);
      callers.serve(make(host), authority, request, connection);
    } catch (error) {
      if (!this.connections.leaveWaiting(connection)) return;
      const refusal = toCulvertError(error);
      this.#recordRefused(shownAuthority(authority), connection, refusal);
      reply.refuseConnect(connection.socket, refusal, TOKEN_CHALLENGES);
      this.#logRefused(connection, printable(refusal.message));
    }
  }

  /** It came in clear and to no cluster, so that no `ConnectRecord` is made of it. */
  #recordRefused(target: string, { source }: IncomingConnection, { code, message }: CulvertError): void {
    const { audit, metrics } = this.#context;
    const facts = { cluster: undefined, source: formatEndpoint(source), target };
    audit()?.refused({ kind: "connect", by: {}, ...facts }, code, message);
    metrics.callerOfNoCluster({ code, from: source.address, target, reason: message });
  }

  /** The cluster that the client is, by its own words, a caller of. Throws `unauthenticated`. */
  #hostFor(headers: IncomingHttpHeaders, connection: IncomingConnection): ClusterVirtualHost {
    // By the server name in its TLS handshake; another name in Basic is refused, as at the callers' port.
    if (connection.host !== undefined) return connection.host as ClusterVirtualHost;
    const { clusters } = this.#with;
    const presented = presentedToken(headers["proxy-authorization"]);
    if (presented?.cluster !== undefined) {
      const host = clusters.get(presented.cluster)?.callers;
      if (host?.verifier !== undefined) return host;
      throw unauthenticated(`no cluster "${printable(presented.cluster, 64)}" takes tokens of callers here`);
    }
    if (presented === undefined) throw unauthenticated(TOKEN_NEEDED);
    const [only, ...others] = this.#hostsWithTokens();
    if (only === undefined || others.length > 0) throw unauthenticated(NO_CLUSTER_NAMED);
    return only;
  }

  #hostsWithTokens(): ClusterVirtualHost[] {
    const hosts = Array.from(this.#with.clusters.all(), ({ callers }) => callers);
    return hosts.filter(({ verifier }) => verifier !== undefined);
  }

  onHttp2(connection: IncomingConnection): void {
    this.#refuse(connection, "notForProxy");
  }

  onLate(connection: IncomingConnection): void {
    this.#refuse(connection, "headerTimeout");
  }

  onClientError(error: NodeJS.ErrnoException, connection: IncomingConnection): void {
    const { socket } = connection;
    if (!socket.writable || error.code === "ECONNRESET") socket.destroy();
    else this.#refuse(connection, reply.readFault(error));
  }

  #refuse(connection: IncomingConnection, refusal: reply.CallerHttpRefusal): void {
    if (!this.connections.leaveWaiting(connection)) return;
    reply.refuseRequest(connection.socket, refusal);
    this.#logRefused(connection, reply.sentenceOf(refusal));
  }

  #logRefused({ remote }: IncomingConnection, reason: string): void {
    this.#context.throttledLog.write("info", { listener: "http", remote, reason }, "request refused");
  }
}

/** A client in clear has nothing else to prove itself by. */
const NO_TOKENS =
  "--http-port refuses everybody: no cluster takes tokens of callers (callers.token in a document of --clusters)";
const TOKEN_NEEDED = "a token is needed: send Proxy-Authorization: Basic CLUSTER:TOKEN, or Bearer TOKEN";
const NO_CLUSTER_NAMED =
  "Bearer does not say of which cluster the token is, and it is not the only one: send Basic CLUSTER:TOKEN";

function unauthenticated(sentence: string): CulvertError {
  return new CulvertError("unauthenticated", sentence);
}
