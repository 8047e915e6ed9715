import type { AddressInfo } from "node:net";
import type { Duplex } from "node:stream";
import type { FastifyRequest } from "fastify";
import type { WebSocket } from "ws";
import { BySource } from "../../shared/basics/by-source.ts";
import { TurnQueue } from "../../shared/basics/timers.ts";
import { answerAndEnd, refusalText } from "../../shared/http/connection.ts";
import { proxyStatus } from "../../shared/http/response-fields.ts";
import { answerHello, openCarrier, orRefuse, receiveHello } from "../../shared/link/accept.ts";
import type { Carrier } from "../../shared/link/carrier.ts";
import type { Hello, OuterHello, ResumeAnswer, Welcome } from "../../shared/link/control.ts";
import { Link } from "../../shared/link/link.ts";
import type { Acceptor } from "../../shared/listen/acceptor.ts";
import type { IncomingConnection } from "../../shared/listen/incoming-connection.ts";
import type { VirtualHost } from "../../shared/listen/listeners.ts";
import { agentStatus, CulvertError, outcome, printable } from "../../shared/outcomes.ts";
import { type PeerIdentity, subjectOf } from "../../shared/tls/identity.ts";
import type { ServerTls } from "../../shared/tls/tls-material.ts";
import { CloseCode, HANDSHAKE_VERSION, LinkRefused } from "../../shared/wire/handshake.ts";
import { openTlsPort } from "../listeners/open-port.ts";
import { PortConnections, type WaitingConnections } from "../listeners/port-connections.ts";
import { connectionOf, requestsTo, upgradeApp, webSocketHandler } from "../listeners/upgrade-app.ts";
import type { ServerContext } from "../tunnels/context.ts";
import { Links, type ResumableLink } from "../tunnels/links.ts";
import { firstWindows } from "../tunnels/yamux-tunnel.ts";
import { AcceptedPeer, type DialledServer, makeRoom } from "./accepted-peers.ts";
import { PEER_PATH } from "./peer-link.ts";

/** The parts of a server that the port uses. */
interface PeerPortSurroundings extends DialledServer {
  readonly waiting: WaitingConnections;
  readonly material: () => ServerTls;
}

/** Links of peers belong to no cluster. */
const NO_CLUSTER = "";
const NOT_FOR_YOU = "this port is for other servers (--peer-port): callers go to --server-port, agents to --agent-port";

/** The decoration of a request that has the peer's identity. */
const IDENTITY = "identity";

/** A hello that was not refused. */
interface AcceptedHello {
  readonly answer: Welcome | ResumeAnswer;
  /** Present for a new link. */
  readonly entry?: ResumableLink;
  /** Called with the carrier when the answer is sent; a new link has ended when it resolves. */
  use(carrier: Carrier): Promise<void> | void;
}

/**
 * The port on which other servers connect, over mutual TLS. A link that is open outlives its connections, as those of
 * agents do.
 *
 * ```
 *  TLS ─▶ one request ─▶ certificate and role ─▶ upgrade ─▶ hello, welcome ─▶ link, session ─▶ streams by kind
 *                └──────────────┴─▶ one HTTP answer
 * ```
 */
export class PeerPort {
  readonly #around: PeerPortSurroundings;
  readonly #context: ServerContext;
  #connections: PortConnections | undefined;
  readonly #links: Links;
  readonly #peers = new BySource<AcceptedPeer>();
  readonly #turns = new TurnQueue();
  #listener: Acceptor | undefined;

  constructor(around: PeerPortSurroundings, context: ServerContext) {
    this.#around = around;
    this.#context = context;
    this.#links = new Links(context.options.serverId);
  }

  /** Rejects with a `ConfigError`. */
  async open(): Promise<AddressInfo> {
    const { options } = this.#context;
    const { material } = this.#around;
    const host: VirtualHost = {
      get tls() {
        return material();
      },
    };
    const connections = await this.#serve();
    this.#connections = connections;
    const { listener, address } = await openTlsPort(
      {
        name: "peers",
        hosts: { single: host, find: () => host },
        proxyProtocol: "off",
        port: options.peerPort,
        host: options.peerBindAddress,
        option: "--peer-port",
        hostOption: "--peer-bind-address",
        keepaliveMs: 0,
        onConnection: (connection) => connections.take(connection),
      },
      this.#context,
    );
    this.#listener = listener;
    return address;
  }

  get isUp(): boolean {
    return this.#listener?.listening === true;
  }

  /** The requests of this port: hooks, then the upgrade. */
  async #serve(): Promise<PortConnections> {
    const { handshakeTimeoutMs: deadlineMs } = this.#context.options;
    const { waiting } = this.#around;
    const app = await upgradeApp((error, request) => this.#refuse(error, connections, connectionOf(request)));
    const connections = new PortConnections(
      { listener: "peers", waiting, deadlineMs },
      {
        ...requestsTo(app),
        onHttp2: ({ socket }) => socket.destroy(),
        onClientError: (_error, { socket }) => socket.destroy(),
      },
      this.#context,
    );
    app.decorateRequest(IDENTITY);
    app.addHook("onRequest", requireUpgrade);
    app.addHook("onRequest", async (request) => {
      request.setDecorator(IDENTITY, this.#around.trust.verify(connectionOf(request)));
    });
    app.addHook("onRequest", requirePath);
    app.route({
      method: "GET",
      url: PEER_PATH,
      handler: requireUpgrade,
      wsHandler: webSocketHandler((ws, request) => {
        const connection = connectionOf(request);
        void this.#attach(ws, connection, request.getDecorator<PeerIdentity>(IDENTITY), connections);
        connection.socket.resume(); // the reader of the request has paused it
      }),
    });
    await app.ready();
    return connections;
  }

  /** The caller of a peer's port may be an agent or a caller that has been misled: it is written down. */
  #refuse(refusal: CulvertError, connections: PortConnections, connection: IncomingConnection): void {
    connections.leaveWaiting(connection);
    this.#logRefused(connection.remote, refusal.message, agentStatus(refusal.code));
    refusePeer(connection.socket, refusal);
  }

  #logRefused(remote: string, reason: string, code: number | undefined): void {
    this.#context.throttledLog.write("warn", { remote, code, reason: printable(reason) }, "peer refused");
    this.#context.metrics.hops.peerRefused();
  }

  async #attach(
    ws: WebSocket,
    connection: IncomingConnection,
    identity: PeerIdentity,
    connections: PortConnections,
  ): Promise<void> {
    const { socket, remote } = connection;
    const { helloTimeoutMs, keepaliveMs } = this.#context.options;
    try {
      const carrier = openCarrier(ws, socket, { keepaliveMs, turns: this.#turns });
      const hello = await receiveHello(carrier, helloTimeoutMs);
      connections.leaveWaiting(connection); // until now it is one of those that wait, which are few
      const { answer, entry, use } = orRefuse(carrier, () => this.#onHello(hello, identity, connection));
      try {
        answerHello(carrier, answer);
        await use(carrier);
      } finally {
        if (entry !== undefined) this.#links.forget(entry.id);
      }
    } catch (error) {
      if (!(error instanceof LinkRefused)) ws.terminate();
      this.#logRefused(remote, (error as Error).message, error instanceof LinkRefused ? error.closeCode : undefined);
    }
  }

  #onHello(hello: Hello | OuterHello, identity: PeerIdentity, { network, remote }: IncomingConnection): AcceptedHello {
    if ("inner" in hello) {
      throw new LinkRefused({ closeCode: CloseCode.forbidden, reason: "servers use no inner TLS between them" });
    }
    const { serverId, linkGraceMs: graceMs, keepaliveMs, replayBuffer: replayBytes } = this.#context.options;
    const { agentId, instance, resume } = hello;
    const owner = { agentId, instance, identity: subjectOf(identity) };
    if (resume !== undefined) {
      const { entry, link, answer } = this.#links.resume(NO_CLUSTER, resume, owner);
      return {
        answer,
        use: (carrier) => {
          entry.onCredential?.({ identity: owner.identity, peer: identity, ca: undefined, token: undefined });
          link.offer(carrier, remote, { peerReceived: resume.received, named: answer.received });
        },
      };
    }
    if (instance === this.#around.instance || agentId === serverId) {
      const reason = `this is server "${serverId}" itself, or another one with the same --server-id`;
      throw new LinkRefused({ closeCode: CloseCode.duplicate, reason });
    }
    if (this.#context.draining()) {
      throw new LinkRefused({ closeCode: CloseCode.draining, reason: `server "${serverId}" is shutting down` });
    }
    makeRoom(this.#peers, network);
    const entry = this.#links.issue(NO_CLUSTER, owner);
    const answer: Welcome = {
      type: "welcome",
      version: HANDSHAKE_VERSION,
      serverId,
      link: entry.id,
      key: entry.key.text,
      keepaliveMs,
      graceMs,
      ...firstWindows(this.#context.options),
    };
    const use = async (carrier: Carrier): Promise<void> => {
      const link = new Link(entry.id, remote, carrier, { graceMs, replayBytes, pool: this.#around.memory.links });
      entry.link = link;
      const peer = new AcceptedPeer(hello, link, identity, this.#around, this.#context);
      this.#peers.add(peer, network);
      entry.onCredential = ({ peer: renewed }) => peer.watch.renewed(renewed);
      await peer.closed;
      this.#peers.delete(peer);
    };
    return { answer, entry, use };
  }

  /** The files of the peer port have changed: peers show their certificates again. */
  verifyAgain(): void {
    for (const peer of this.#peers) peer.watch.verifyAgain();
  }

  /** Ends the links of peers whose certificates are revoked now. */
  endRevoked(): void {
    for (const peer of this.#peers) this.#turns.run(() => peer.watch.endIfRevoked());
  }

  /** The links of peers that are open. */
  get size(): number {
    return this.#peers.size;
  }

  /** Takes no new streams; open ones have `deadlineMs`, and their links may need another connection meanwhile. */
  async close(deadlineMs: number): Promise<void> {
    this.#connections?.destroyWaiting();
    await Promise.all([...this.#peers].map((peer) => peer.close(deadlineMs)));
    this.#listener?.stopAccepting();
  }

  destroy(reason: Error): void {
    for (const peer of this.#peers) peer.destroy(reason);
    this.#connections?.resetAll();
    this.#listener?.destroyAll();
  }
}

async function requireUpgrade({ method, ws }: FastifyRequest): Promise<void> {
  if (method !== "GET" || !ws) throw new CulvertError("forbidden", NOT_FOR_YOU);
}

async function requirePath({ originalUrl }: FastifyRequest): Promise<void> {
  if (originalUrl.split("?", 1)[0] === PEER_PATH) return;
  throw new CulvertError("forbidden", `other servers connect at ${PEER_PATH}: ${NOT_FOR_YOU}`);
}

/** Refuses a connection to the peers' port in HTTP, so that the log of the other end shows the sentence. */
function refusePeer(socket: Duplex, { code, fault, message }: CulvertError): void {
  const sentence = printable(message);
  const headers = { "Proxy-Status": proxyStatus({ error: outcome(code).proxyStatus, fault }, sentence) };
  answerAndEnd(socket, refusalText(agentStatus(code), headers, sentence));
}
