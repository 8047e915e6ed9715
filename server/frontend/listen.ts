import { createServer, type IncomingMessage, type Server } from "node:http";
import type { Duplex } from "node:stream";
import { toCulvertError } from "../../shared/outcomes.ts";
import { Sockets } from "../sockets.ts";
import { authenticate, type Door } from "./authenticate.ts";
import * as reply from "./reply.ts";

export interface FrontendOptions {
  /** Largest request header, bytes. */
  readonly headerLimit: number;
  /** From connection to complete header, ms. */
  readonly headerTimeoutMs: number;
}

/** What comes out of a door. */
export interface FrontendHandler {
  onConnect(request: IncomingMessage, socket: Duplex, head: Buffer, door: Door): void;
  /** A request that is no CONNECT, or no HTTP; it has been answered. */
  onRefused(reason: string): void;
}

/**
 * Reads CONNECT requests off sockets that listeners have accepted. An http.Server that itself never listens, so that
 * what stands before HTTP (a unix socket, TLS, later an SNI reader) is the listeners' business.
 */
export class Frontend {
  /** Every connection that came in and has not closed. */
  readonly sockets = new Sockets();
  readonly #http: Server;
  readonly #door: Door;
  readonly #options: FrontendOptions;
  readonly #handler: FrontendHandler;
  constructor(door: Door, options: FrontendOptions, handler: FrontendHandler) {
    this.#door = door;
    this.#options = options;
    this.#handler = handler;
    this.#http = createServer({
      maxHeaderSize: options.headerLimit,
      // Host means nothing here, not even its absence (design: "The caller's side", 1).
      requireHostHeader: false,
      insecureHTTPParser: false,
      // `sockets` keeps the time.
      headersTimeout: 0,
      requestTimeout: 0,
      keepAliveTimeout: 0,
    });
    this.#http.on("connect", this.#onConnect);
    for (const event of ["request", "checkContinue", "checkExpectation"]) this.#http.on(event, this.#onOtherRequest);
    this.#http.on("clientError", this.#onClientError);
  }

  /** A connection that a listener has accepted; over TLS, after the handshake. */
  take(socket: Duplex): void {
    this.sockets.add(socket, this.#options.headerTimeoutMs, this.#onLate);
    this.#http.emit("connection", socket);
  }

  readonly #onLate = (socket: Duplex): void => this.#refuse(socket, "headerTimeout");

  readonly #onConnect = (request: IncomingMessage, socket: Duplex, head: Buffer): void => {
    if (this.sockets.stopWaiting(socket)) this.#handler.onConnect(request, socket, head, this.#door);
    else socket.resume(); // behind a request that was refused: nobody reads it
  };

  readonly #onOtherRequest = (request: IncomingMessage): void => {
    request.resume();
    this.#refuse(request.socket, "method");
  };

  readonly #onClientError = (error: NodeJS.ErrnoException, socket: Duplex): void => {
    if (!socket.writable || error.code === "ECONNRESET") socket.destroy();
    else this.#refuse(socket, error.code === "HPE_HEADER_OVERFLOW" ? "headerTooLarge" : "malformed");
  };

  #refuse(socket: Duplex, refusal: reply.HttpRefusal): void {
    if (!this.sockets.stopWaiting(socket)) return;
    try {
      authenticate(this.#door, socket); // judged first of all: strangers learn nothing else
      reply.refusedRequest(socket, refusal);
      this.#handler.onRefused(refusal);
    } catch (error) {
      const stranger = toCulvertError(error);
      reply.refused(socket, stranger);
      this.#handler.onRefused(stranger.message);
    }
  }
}
