import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import { Duplex } from "node:stream";
import { answerAndEnd, HeaderEnd } from "../http/connection.ts";
import { feedParser } from "../node/http.ts";
import type { IncomingConnection } from "./incoming-connection.ts";

/** The error code for a client that speaks HTTP/2; Node's parser has none for it. */
export const HTTP_2 = "CULVERT_HTTP_2";
/** The part of HTTP/2's connection preface that looks like the header of a request (RFC 9113 §3.4). */
const PREFACE_HEADER = Buffer.from("PRI * HTTP/2.0\r\n\r\n", "latin1");
/**
 * Time to read the answer for a peer that has sent more than its request, ms. The rest is not read; closing at once
 * would send a RST, which could destroy the answer.
 */
const UNREAD_MS = 1_000;

/**
 * The part of a connection that Node's HTTP parser gets: its first request, and not one byte after it. The parser would
 * go on: it parses all bytes of one turn of the loop, which can be thousands of requests in a packet, and makes two
 * objects for each. The bytes after the request stay unread in the connection.
 *
 * ```
 *  begin ─▶ header ─▶ the parser reports it ─┬─▶ release: the connection is used without this Duplex
 *                                            ├─▶ readBody ─▶ the parser's side writes the answer, and ends
 *                                            └─▶ refuse: an answer, and the end
 * ```
 */
export class FirstRequest extends Duplex {
  readonly connection: IncomingConnection;
  readonly #server: Server;
  readonly #header = new HeaderEnd();
  #isParsing = false;
  /** The parser has reported the request, or it was refused. */
  #isReported = false;
  #isReleased = false;
  #bodyBytes = 0;
  #onBody: (() => void) | undefined;

  /** `server`: its parser reads the request. The connection must already have an error listener. */
  constructor(connection: IncomingConnection, server: Server) {
    super();
    this.connection = connection;
    this.#server = server;
    this.on("error", () => {}); // an error ends it, which is enough
  }

  /** Starts reading. */
  begin(): void {
    this.connection.socket.on("close", this.#onClose);
    this.#read();
  }

  /** The parser has read the header, and nobody needs this Duplex any more. */
  release(): void {
    this.#isReported = true;
    this.#isReleased = true;
    this.#pause();
    this.connection.socket.off("close", this.#onClose);
  }

  /** The parser has read the header. `bytes` after it belong to the request; `onRead` is called after the last one. */
  readBody(bytes: number, onRead: () => void): void {
    this.#isReported = true;
    if (bytes === 0) {
      onRead();
      return;
    }
    this.#bodyBytes = bytes;
    this.#onBody = onRead;
    setImmediate(() => this.#read()); // the parser calls this, and must not be called back in between
  }

  /** Answers a peer whose request is not served, and ends. Later bytes are not parsed. */
  refuse(answer: string): void {
    if (this.destroyed || this.writableEnded) return;
    this.#isReported = true;
    this.#pause();
    this.#destroyIn(UNREAD_MS); // whether the answer is read or not
    this.end(answer, "latin1");
  }

  override _read(): void {}

  override _write(chunk: Buffer, encoding: BufferEncoding, done: (error?: Error | null) => void): void {
    if (this.#isReleased) done();
    else this.connection.socket.write(chunk, encoding, done);
  }

  override _final(done: (error?: Error | null) => void): void {
    const { socket } = this.connection;
    if (this.#isReleased) {
      done();
      return;
    }
    socket.end(() => {
      if (socket.readableLength === 0) answerAndEnd(socket, "");
      else this.#destroyIn(UNREAD_MS);
      done();
    });
  }

  override _destroy(error: Error | null, done: (error: Error | null) => void): void {
    if (!this.#isReleased) {
      this.connection.clearDeadline();
      this.connection.socket.destroy();
    }
    done(error);
  }

  #read(): void {
    if (this.destroyed) return;
    this.connection.socket.on("data", this.#onData).on("end", this.#onEnd).resume(); // it may be paused
  }

  #pause(): void {
    this.connection.socket.off("data", this.#onData).off("end", this.#onEnd).pause();
  }

  readonly #onData = (piece: Buffer): void => {
    const length = this.#lengthIn(piece);
    const isWhole = this.#header.hasEnded && this.#bodyBytes === 0;
    if (isWhole) {
      this.#pause();
      if (length < piece.length) this.connection.socket.unshift(piece.subarray(length));
    }
    const bytes = piece.subarray(0, length);
    if (!this.#isParsing) {
      this.#isParsing = true;
      this.#server.emit("connection", this);
    }
    feedParser(this, bytes);
    if (isWhole && !this.#isReported) this.#onHttp2();
    if (this.#bodyBytes === 0) this.#onBody?.();
  };

  /**
   * The header is whole, and the parser has reported nothing: Node's parser waits for more if the header could be the
   * connection preface of HTTP/2 (RFC 9113 §3.4).
   */
  #onHttp2(): void {
    if (this.destroyed) return;
    const error = Object.assign(new Error("the client speaks HTTP/2"), { code: HTTP_2 });
    this.#server.emit("clientError", error, this);
  }

  /** The number of bytes of the piece that belong to the request. */
  #lengthIn(piece: Buffer): number {
    if (!this.#header.hasEnded) return this.#header.push(piece);
    const length = Math.min(piece.length, this.#bodyBytes);
    this.#bodyBytes -= length;
    return length;
  }

  readonly #onEnd = (): void => {
    if (this.#isParsing)
      this.push(null); // the parser reports half a request as an error
    else this.connection.socket.end();
  };

  readonly #onClose = (): void => {
    this.destroy();
  };

  #destroyIn(ms: number): void {
    this.connection.setDeadline(ms, () => this.destroy());
  }
}

/** Handles the one request of a connection, whose bytes after the header are still unread in its socket. */
export interface RequestHandler {
  onConnect(request: IncomingMessage, connection: IncomingConnection): void;
  onUpgrade(request: IncomingMessage, connection: IncomingConnection): void;
  /** The client speaks HTTP/2; its whole preface is unread in the socket. */
  onHttp2(connection: IncomingConnection): void;
  /** Any other request. */
  onRequest(request: IncomingMessage, connection: IncomingConnection, response: ServerResponse): void;
  /** The bytes are not HTTP/1, the header is too large, or it has ended too early. */
  onClientError(error: NodeJS.ErrnoException, connection: IncomingConnection): void;
}

/**
 * A server that never listens, and parses the headers of `FirstRequest`. The handler gets the connection without its
 * `FirstRequest` and writes the answer on it; the handler checks Host, the number of header lines and Expect as well.
 */
export function headerParser(maxHeaderSize: number, handler: RequestHandler): Server {
  const server = createServer({
    maxHeaderSize,
    requireHostHeader: false,
    insecureHTTPParser: false,
    // The connection has a deadline of its own.
    headersTimeout: 0,
    requestTimeout: 0,
    keepAliveTimeout: 0,
  });
  server.maxHeadersCount = 0;
  const releaseConnection = (first: FirstRequest): IncomingConnection => {
    first.release();
    return first.connection;
  };
  const onRequest = (request: IncomingMessage, response: ServerResponse): void => {
    const connection = releaseConnection(firstRequestOf(request));
    request.socket.destroy(); // after a CONNECT or an upgrade Node's parser lets go of it itself
    handler.onRequest(request, connection, response);
  };
  for (const event of ["request", "checkContinue", "checkExpectation"]) server.on(event, onRequest);
  server.on("connect", (request) => handler.onConnect(request, releaseConnection(firstRequestOf(request))));
  server.on("upgrade", (request) => handler.onUpgrade(request, releaseConnection(firstRequestOf(request))));
  server.on("clientError", (error, socket) => {
    const first = socket as unknown as FirstRequest;
    const connection = releaseConnection(first);
    first.destroy();
    if ((error as NodeJS.ErrnoException).code === HTTP_2) {
      connection.socket.unshift(PREFACE_HEADER);
      handler.onHttp2(connection);
    } else handler.onClientError(error, connection);
  });
  return server;
}

/** The stream that this request was parsed from. */
export function firstRequestOf({ socket }: IncomingMessage): FirstRequest {
  return socket as unknown as FirstRequest;
}

/** The values of a header in `IncomingMessage.rawHeaders`, in their order; `name` is in lower case. */
export function valuesOf(rawHeaders: readonly string[], name: string): string[] {
  return rawHeaders.filter((_, at) => at % 2 === 1 && rawHeaders[at - 1]?.toLowerCase() === name);
}
