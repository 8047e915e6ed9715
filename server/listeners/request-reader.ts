import { createServer, type IncomingMessage, type Server } from "node:http";
import { Duplex } from "node:stream";
import { HeaderEnd } from "../../shared/http/connection.ts";
import type { IncomingConnection } from "../../shared/listen/incoming-connection.ts";
import { feedParser, moveRequest } from "../../shared/node/http.ts";

/** What is used of a request's header, whoever has read it: Node's parser, or `readUsualConnect`. */
export type RequestHeader = Pick<
  IncomingMessage,
  "url" | "headers" | "rawHeaders" | "httpVersion" | "httpVersionMajor"
>;

/** Handles the one request of a connection. `request.socket` is the connection's socket for an upgrade only. */
export interface RequestHandler {
  /** Bytes after the header are still unread in the socket. */
  onConnect(request: RequestHeader, connection: IncomingConnection): void;
  onUpgrade(request: IncomingMessage, connection: IncomingConnection): void;
  /** Any other request. */
  onRequest(request: IncomingMessage, connection: IncomingConnection): void;
  /** The bytes are not HTTP/1, the header is too large, or it has ended too early. */
  onClientError(error: NodeJS.ErrnoException, connection: IncomingConnection): void;
}

/** The connection preface of HTTP/2 begins with "PRI * HTTP/2.0" (RFC 9113 §3.4). */
const LETTER_P = 0x50;
/** The error code for a client that speaks HTTP/2; Node's parser has none for it. */
export const HTTP_2 = "CULVERT_HTTP_2";

/** The part of a connection that Node's parser gets: the header of its first request. */
class FirstHeader extends Duplex {
  readonly connection: IncomingConnection;

  constructor(connection: IncomingConnection) {
    super();
    this.connection = connection;
  }

  override _read(): void {}

  /** Answers are written on the connection itself. */
  override _write(_chunk: Buffer, _encoding: string, done: () => void): void {
    done();
  }
}

/**
 * Reads one request of each connection, and no byte after its header. Node's parser would go on: it parses all bytes of
 * one turn of the loop, which can be thousands of requests in a packet, and makes two objects for each. The bytes after
 * the header stay unread in the connection. A usual CONNECT in one piece does not need that parser.
 */
export class RequestReader {
  readonly #http: Server;
  readonly #headerLimit: number;
  readonly #handler: RequestHandler;

  constructor(headerLimit: number, handler: RequestHandler) {
    this.#headerLimit = headerLimit;
    this.#handler = handler;
    this.#http = createServer({
      maxHeaderSize: headerLimit,
      requireHostHeader: false, // the handler decides about Host
      insecureHTTPParser: false,
      // The connection has a deadline of its own.
      headersTimeout: 0,
      requestTimeout: 0,
      keepAliveTimeout: 0,
    });
    this.#http.maxHeadersCount = 0; // no limit: the handler counts header lines
    const handle =
      (method: "onConnect" | "onUpgrade" | "onRequest") =>
      (request: IncomingMessage): void => {
        const { connection } = request.socket as unknown as FirstHeader;
        if (method === "onRequest") request.socket.destroy(); // Node's parser lets go of the others itself
        if (method === "onUpgrade") moveRequest(request, connection.socket);
        handler[method](request, connection);
      };
    this.#http.on("connect", handle("onConnect"));
    this.#http.on("upgrade", handle("onUpgrade"));
    for (const event of ["request", "checkContinue", "checkExpectation"]) this.#http.on(event, handle("onRequest"));
    this.#http.on("clientError", (error, header) => {
      header.destroy();
      handler.onClientError(error, (header as unknown as FirstHeader).connection);
    });
  }

  read(connection: IncomingConnection): void {
    const { socket } = connection;
    const end = new HeaderEnd();
    /** Present once bytes have come that Node's parser is to read. */
    let header: FirstHeader | undefined;
    let startsLikeHttp2 = false;
    const onData = (piece: Buffer): void => {
      const length = end.push(piece);
      if (end.hasEnded) {
        release();
        socket.pause();
        if (length < piece.length) socket.unshift(piece.subarray(length));
      }
      const bytes = piece.subarray(0, length);
      if (header === undefined) {
        const usual = end.hasEnded && length < this.#headerLimit ? readUsualConnect(bytes) : undefined;
        if (usual !== undefined) {
          this.#handler.onConnect(usual, connection);
          return;
        }
        header = new FirstHeader(connection);
        header.on("error", () => {}); // errors of the header come as `clientError`
        header.once("close", release); // the parser wants no more of it
        this.#http.emit("connection", header);
        startsLikeHttp2 = piece[0] === LETTER_P;
      }
      feedParser(header, bytes);
      if (startsLikeHttp2 && end.hasEnded) setImmediate(onHttp2, header);
    };
    // Node's parser wants more bytes after the empty line of a request that could be the beginning of HTTP/2.
    const onHttp2 = (begun: FirstHeader): void => {
      const error = Object.assign(new Error("the client speaks HTTP/2"), { code: HTTP_2 });
      if (!begun.destroyed) this.#http.emit("clientError", error, begun);
    };
    const onEnd = (): void => {
      // The parser reports half a header as an error.
      if (header !== undefined) header.push(null);
      else if (!socket.destroyed) socket.end();
    };
    const onClose = (): void => {
      header?.destroy();
    };
    const release = (): void => {
      socket.off("data", onData).off("end", onEnd).off("close", onClose);
    };
    socket.on("data", onData).on("end", onEnd).on("close", onClose);
    socket.resume(); // it may be paused
  }
}

/** The values of a header in `IncomingMessage.rawHeaders`, in their order; `name` is in lower case. */
export function valuesOf(rawHeaders: readonly string[], name: string): string[] {
  return rawHeaders.filter((_, at) => at % 2 === 1 && rawHeaders[at - 1]?.toLowerCase() === name);
}

/** A token of a Kubernetes service account has some 1,200 bytes. */
const MAX_BYTES = 4_096;
const LETTER_C = 0x43;

/** A target of host and port, without any byte that a parser could understand differently. */
const REQUEST_LINE = /^CONNECT ([\w.:[\]-]+) HTTP\/1\.1$/;
/** Fields that change nothing about how a request is read, with values of printable ASCII. */
const FIELD = /^(host|user-agent|proxy-authorization): ([!-~](?:[ -~]*[!-~])?)$/i;

/**
 * Reads a header section that is a CONNECT as kube-apiserver, Go and curl's relatives send it, which is nearly every
 * one: Node's HTTP server makes five objects with some thirty listeners for a connection, and this none (measured: 40
 * to 60 µs of a CONNECT).
 * `undefined`: it is anything else, and Node's parser decides; whatever is read here, Node's parser reads the same way.
 */
export function readUsualConnect(header: Buffer): RequestHeader | undefined {
  if (header[0] !== LETTER_C || header.length > MAX_BYTES) return undefined;
  const [requestLine = "", ...lines] = header.toString("latin1").split("\r\n");
  const url = REQUEST_LINE.exec(requestLine)?.[1];
  // The section ends with an empty line, and so with two empty pieces.
  if (url === undefined || lines.pop() !== "" || lines.pop() !== "") return undefined;
  const headers: Record<string, string> = {};
  const rawHeaders: string[] = [];
  for (const line of lines) {
    const [, name, value] = FIELD.exec(line) ?? [];
    if (name === undefined || value === undefined) return undefined;
    headers[name.toLowerCase()] ??= value; // of several, Node keeps the first
    rawHeaders.push(name, value);
  }
  return { url, headers, rawHeaders, httpVersion: "1.1", httpVersionMajor: 1 };
}
