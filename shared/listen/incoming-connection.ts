import type { Socket } from "node:net";
import type { Duplex } from "node:stream";
import { networkOf, withoutMapping } from "../address/network.ts";
import { QueueNode } from "../basics/collections.ts";
import { type HandshakeBudget, UNLIMITED } from "./handshake-budget.ts";
import type { QueuedHandshake } from "./handshake-queue.ts";
import type { Endpoint, FirstBytes, FoundHello } from "./preface.ts";

/**
 * The property of a socket that holds its `IncomingConnection`. It is needed because events of a TLS server and
 * `request.socket` give only a socket. All other facts are in the connection.
 */
const CONNECTION = Symbol("IncomingConnection");

interface WithConnection {
  [CONNECTION]?: IncomingConnection;
}

/** The state of a connection. Its owner is the acceptor, and from `request` on the port that it was handed to. */
type ConnectionState = "preface" | "queued" | "handshake" | "request" | "open" | "closed";

/** A TLS handshake in progress. */
export interface HandshakeInProgress {
  readonly connection: IncomingConnection;
  /** Bytes that had been received when the handshake began. */
  readonly bytesBefore: number;
  /** Bytes that were counted as wasted while it was in progress. */
  charged: number;
}

/**
 * A connection from its accept to its close, with every fact that is known about it.
 *
 * ```
 *  preface ─▶ queued ─▶ handshake ─▶ request ─▶ open        preface: PROXY header and ClientHello are read
 *     └─────────┴──────────┴───────────┴─────────┴─▶ closed  request: the port reads the first request
 * ```
 *
 * `Host` is the type of the virtual host that the connection came to.
 */
export class IncomingConnection<Host = unknown> implements QueuedHandshake {
  /** The TCP or unix socket. */
  readonly raw: Socket;
  state: ConnectionState = "preface";
  /** Address and port of the other end, as the kernel knew them at the accept. */
  readonly peer: Endpoint;
  /** The client behind the balancer, if a PROXY header names one. */
  client: Endpoint | undefined;
  /** The ClientHello, if the listener reads it. */
  hello: FoundHello | undefined;
  /** The virtual host that the connection came to. A port that finds the host by `Host` sets it for each request. */
  host: Host | undefined;
  /** The CA (PEM) by which TLS verifies the client's certificate; the host may have got another one since. */
  verifiedBy: string | undefined;
  budget: HandshakeBudget = UNLIMITED;
  /** The time at which the handshake began, by `performance.now()`. */
  begunAt = 0;
  /** Its TLS handshake, while that is in progress. */
  handshake: HandshakeInProgress | undefined;
  /** Set by the owner of the connection: ends it and tells the peer why. Absent: the connection is destroyed. */
  onFlood: ((sentence: string) => void) | undefined;
  /** The bytes that the client has sent before its turn; present in the states `preface` and `queued`. */
  firstBytes: FirstBytes | undefined;
  /** Called when it has to make room, because the process has too many connections without a request. */
  onCrowdedOut: () => void = () => {};
  /** The place among the connections of the port that this connection was handed to. */
  readonly place = new QueueNode<IncomingConnection<Host>>(this);
  #socket: Socket;
  #deadline: NodeJS.Timeout | undefined;
  /** The network of the source; the source changes when a PROXY header is read. */
  #network: { readonly of: Endpoint; readonly name: string } | undefined;

  constructor(raw: Socket) {
    this.raw = raw;
    this.#socket = raw;
    this.peer = peerOf(raw);
    (raw as WithConnection)[CONNECTION] = this;
  }

  /** The connection of a TCP or unix socket, or of the TLS socket on it. `Host` is the type that the port has set. */
  static of<Host = unknown>(socket: Duplex): IncomingConnection<Host> | undefined {
    return (socket as WithConnection)[CONNECTION] as IncomingConnection<Host> | undefined;
  }

  /** The socket to use: `raw`, and after a TLS handshake the TLS socket. */
  get socket(): Socket {
    return this.#socket;
  }

  /** The handshake is done, or none is needed: from now on the connection uses `socket`. */
  handedOn(socket: Socket): void {
    this.state = "request";
    this.#socket = socket;
    (socket as WithConnection)[CONNECTION] = this;
  }

  /** The client's address, or the balancer's if that names no client. */
  get source(): Endpoint {
    return this.client ?? this.peer;
  }

  /** The source as it is written in logs. */
  get remote(): string {
    return formatEndpoint(this.source);
  }

  /** The network of the source: connections of one network share turns. It is cached, because parsing is slow. */
  get network(): string {
    const { source } = this;
    if (this.#network?.of !== source) this.#network = { of: source, name: networkOf(source.address) };
    return this.#network.name;
  }

  /** Whether the handshake is not done, and the connection is not closed. */
  get isPending(): boolean {
    return this.state === "preface" || this.state === "queued" || this.state === "handshake";
  }

  /** Sets the only deadline of the connection, and replaces an earlier one. */
  setDeadline(ms: number, onLate: () => void): void {
    clearTimeout(this.#deadline);
    this.#deadline = setTimeout(onLate, ms);
  }

  clearDeadline(): void {
    clearTimeout(this.#deadline);
    this.#deadline = undefined;
  }
}

/**
 * The address and port that the kernel has for the other end, an IPv4 address without its IPv6 prefix. Prefer
 * `IncomingConnection.source`: the kernel soon forgets the address of a lost connection.
 */
export function peerOf({ remoteAddress = "nowhere", remotePort = 0 }: Socket): Endpoint {
  return { address: withoutMapping(remoteAddress), port: remotePort };
}

/** Formats one end of a connection for logs. */
export function formatEndpoint({ address, port }: Endpoint): string {
  return `${address}:${port}`;
}
