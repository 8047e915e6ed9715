import { createServer, type IncomingMessage, type Server } from "node:http";
import { Duplex } from "node:stream";
import { HeaderEnd } from "../../shared/http/header-end.ts";
import { feedParser, moveRequest } from "../../shared/node/http.ts";

/** What becomes of the one request of a connection. `request.socket` is not the connection, but for an upgrade. */
export interface RequestHandler {
  onConnect(request: IncomingMessage, connection: Duplex): void;
  onUpgrade(request: IncomingMessage, connection: Duplex): void;
  /** Any other request. */
  onRequest(request: IncomingMessage, connection: Duplex): void;
  /** The bytes are no HTTP/1, too many, or have ended too early. */
  onClientError(error: NodeJS.ErrnoException, connection: Duplex): void;
}

/** The connection preface of HTTP/2 begins with "PRI * HTTP/2.0" (RFC 9113 §3.4). */
const LETTER_P = 0x50;
/** The code of the error for whoever speaks HTTP/2; Node's parser has none for it. */
export const HTTP_2 = "CULVERT_HTTP_2";

/** What Node's parser gets of a connection: the header of its first request. */
class FirstHeader extends Duplex {
  readonly connection: Duplex;

  constructor(connection: Duplex) {
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
 * Reads one request of each connection, and not a byte behind its header. Node's parser would go on: it parses whatever
 * has come in one turn of the loop, thousands of requests in a packet, and makes two objects for each. What follows the
 * header stays unread in the connection, for whoever takes it over.
 */
export class RequestReader {
  readonly #http: Server;

  constructor(headerLimit: number, handler: RequestHandler) {
    this.#http = createServer({
      maxHeaderSize: headerLimit,
      requireHostHeader: false, // what Host means is the handler's to say
      insecureHTTPParser: false,
      // The owner of the connection keeps the time.
      headersTimeout: 0,
      requestTimeout: 0,
      keepAliveTimeout: 0,
    });
    this.#http.maxHeadersCount = 0; // whole, since the handler counts them
    const handle =
      (method: "onConnect" | "onUpgrade" | "onRequest") =>
      (request: IncomingMessage): void => {
        const { connection } = request.socket as unknown as FirstHeader;
        if (method === "onRequest") request.socket.destroy(); // else the parser has let it go
        if (method === "onUpgrade") moveRequest(request, connection);
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

  /** The connection has an error listener, and its owner ends it when the header takes too long. */
  read(connection: Duplex): void {
    const header = new FirstHeader(connection);
    const end = new HeaderEnd();
    let hasSpoken = false;
    let startsLikeHttp2 = false;
    const onData = (piece: Buffer): void => {
      if (!hasSpoken) startsLikeHttp2 = piece[0] === LETTER_P;
      hasSpoken = true;
      const length = end.push(piece);
      if (end.hasEnded) {
        release();
        connection.pause();
        if (length < piece.length) connection.unshift(piece.subarray(length));
      }
      feedParser(header, piece.subarray(0, length));
      if (startsLikeHttp2 && end.hasEnded) setImmediate(onWhole);
    };
    // Node's parser wants more behind an empty line where it takes the request for the beginning of HTTP/2.
    const onWhole = (): void => {
      const error = Object.assign(new Error("the client speaks HTTP/2"), { code: HTTP_2 });
      if (!header.destroyed) this.#http.emit("clientError", error, header);
    };
    const onEnd = (): void => {
      header.push(null);
      if (connection.destroyed || hasSpoken) return; // the parser has something to say of half a header
      header.destroy();
      connection.end();
    };
    const onClose = (): void => {
      header.destroy();
    };
    const release = (): void => {
      connection.off("data", onData).off("end", onEnd).off("close", onClose);
    };
    header.on("error", () => {}); // whatever is wrong with it is told as a client's error
    header.once("close", release);
    this.#http.emit("connection", header);
    connection.on("data", onData).on("end", onEnd).on("close", onClose);
    connection.resume(); // it may have been handed over paused
  }
}

/** The values of a header in `IncomingMessage.rawHeaders`, in their order; `name` is in lower case. */
export function valuesOf(rawHeaders: readonly string[], name: string): string[] {
  return rawHeaders.filter((_, at) => at % 2 === 1 && rawHeaders[at - 1]?.toLowerCase() === name);
}
