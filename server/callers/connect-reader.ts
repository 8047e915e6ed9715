import type { IncomingMessage } from "node:http";
import type { Duplex } from "node:stream";
import type { TLSSocket } from "node:tls";
import { networkOf } from "../../shared/address/network.ts";
import { TurnQueue } from "../../shared/basics/turn-queue.ts";
import { formatEndpoint } from "../../shared/listen/incoming-connection.ts";
import { printable, toCulvertError } from "../../shared/outcomes.ts";
import { HTTP_2, RequestReader, valuesOf } from "../listeners/request-reader.ts";
import { Sockets } from "../listeners/sockets.ts";
import type { WaitingConnections } from "../listeners/waiting-connections.ts";
import { authenticateSocket, callerSource, challenges, type Door } from "./authenticate.ts";
import * as reply from "./reply.ts";

export interface FrontendOptions {
  /** Largest request header, bytes. */
  readonly headerLimit: number;
  /** From connection to complete header, ms. */
  readonly headerTimeoutMs: number;
  /** Connections whose header is not complete; one more drops the oldest. */
  readonly maxWaitingConnections: number;
}

/** Who sent a request that is no CONNECT, as far as that is known, and what it was told. */
export interface RefusedRequest {
  readonly caller?: string | undefined;
  /** Absent: it came over a unix socket. */
  readonly remote?: string | undefined;
  readonly reason: string;
}

/** Who has left without a request. */
export interface LeftCaller {
  readonly remote: string;
  readonly socket: TLSSocket;
}

/** What comes out of a door. */
export interface FrontendHandler {
  /** Bytes behind the request are still unread in the socket. */
  onConnect(request: IncomingMessage, socket: Duplex, door: Door): void;
  /** A request that is no CONNECT, or no HTTP; it has been answered. */
  onRefused(refused: RefusedRequest): void;
  /** A client has left after its TLS handshake, without a byte. */
  onLeft(left: LeftCaller): void;
  /** Too many connections had no complete header, and the oldest was dropped. */
  onDropped(): void;
}

/** Reads one CONNECT off each socket that a listener has accepted. */
export class Frontend {
  /** Every connection that came in and has not closed. */
  readonly sockets: Sockets;
  readonly #requests: RequestReader;
  /** A flood at one door takes turns with the other doors. */
  readonly #turns = new TurnQueue();
  readonly #door: Door;
  readonly #handler: FrontendHandler;

  /** `waiting`: those of all doors together. */
  constructor(door: Door, options: FrontendOptions, waiting: WaitingConnections, handler: FrontendHandler) {
    this.#door = door;
    this.#handler = handler;
    this.sockets = new Sockets({
      deadlineMs: options.headerTimeoutMs,
      maxWaiting: options.maxWaitingConnections,
      all: waiting,
      onLate: (socket) => this.#refuse(socket, "headerTimeout"),
      onDropped: () => handler.onDropped(),
    });
    this.#requests = new RequestReader(options.headerLimit, {
      onConnect: (request, socket) => this.#onConnect(request, socket),
      onUpgrade: (request, socket) => this.#refuse(socket, noConnect(request)),
      onRequest: (request, socket) => this.#refuse(socket, noConnect(request)),
      onClientError: (error, socket) => this.#onClientError(error, socket),
    });
  }

  /** A connection that a listener has accepted; over TLS, after the handshake. */
  take(socket: Duplex): void {
    const source = callerSource(this.#door, socket); // a socket that is cut no longer knows it
    const remote = source && formatEndpoint(source);
    this.sockets.add(
      socket,
      source === undefined ? "" : networkOf(source.address),
      remote === undefined ? undefined : () => this.#handler.onLeft({ remote, socket: socket as TLSSocket }),
    );
    this.#turns.run(() => {
      if (!socket.destroyed) this.#requests.read(socket);
    });
  }

  #onConnect(request: IncomingMessage, socket: Duplex): void {
    // Node's parser takes "CONNECT … HTTP/2.0" and 0.9, too; what follows them is not what they say.
    if (request.httpVersionMajor !== 1) this.#refuse(socket, "malformed");
    else if (valuesOf(request.rawHeaders, "proxy-authorization").length > 1) this.#refuse(socket, "twoCredentials");
    else if (this.sockets.stopWaiting(socket)) this.#handler.onConnect(request, socket, this.#door);
  }

  #onClientError(error: NodeJS.ErrnoException, socket: Duplex): void {
    if (!socket.writable || error.code === "ECONNRESET") socket.destroy();
    else if (error.code === HTTP_2) this.#refuse(socket, "grpc");
    else this.#refuse(socket, error.code === "HPE_HEADER_OVERFLOW" ? "headerTooLarge" : "malformed");
  }

  #refuse(socket: Duplex, refusal: reply.HttpRefusal): void {
    if (!this.sockets.stopWaiting(socket)) return;
    const source = callerSource(this.#door, socket);
    const remote = source && formatEndpoint(source);
    try {
      const { name: caller } = authenticateSocket(this.#door, socket); // judged first of all: strangers learn nothing else
      reply.refusedRequest(socket, refusal);
      this.#handler.onRefused({ caller, remote, reason: reply.sentenceOf(refusal) });
    } catch (error) {
      const stranger = toCulvertError(error);
      const reason = printable(stranger.message);
      reply.refused(socket, stranger, challenges(this.#door));
      // What the caller speaks is one fault, who it is another: the log has both.
      const words = refusal === "grpc" ? `${reply.sentenceOf(refusal)}; ${reason}` : reason;
      this.#handler.onRefused({ remote, reason: words });
    }
  }
}

/** A web proxy is asked for whole URLs (RFC 9112 §3.2.2), as curl does for http:// through `--proxy`. */
function noConnect({ url = "" }: IncomingMessage): reply.HttpRefusal {
  return /^\w+:\/\//.test(url) ? "wholeUrl" : "method";
}
