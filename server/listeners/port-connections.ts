import { createServer, type IncomingMessage, type Server } from "node:http";
import { Duplex } from "node:stream";
import { BySource } from "../../shared/basics/by-source.ts";
import { Queue } from "../../shared/basics/collections.ts";
import type { TurnQueue } from "../../shared/basics/timers.ts";
import { HeaderEnd } from "../../shared/http/connection.ts";
import type { IncomingConnection } from "../../shared/listen/incoming-connection.ts";
import { feedParser, moveRequest } from "../../shared/node/http.ts";
import { resetSocket } from "../../shared/relay/reset.ts";

/** All TCP ports together may have so many times the waiting connections of one (`--max-waiting-connections`). */
export const ALL_PORTS_FACTOR = 4;

/**
 * Connections of all TCP ports and clusters together whose request has not come. One too many drops the oldest of the
 * network that has most.
 */
export class WaitingConnections {
  readonly #most: number;
  readonly #drops = new Map<IncomingConnection, () => void>();
  readonly #bySource = new BySource<IncomingConnection>();

  /** `mostOfOne`: the bound of one cluster or port. */
  constructor(mostOfOne: number) {
    this.#most = ALL_PORTS_FACTOR * mostOfOne;
  }

  get size(): number {
    return this.#bySource.size;
  }

  /** `drop` ends the connection, and calls `delete`. */
  add(connection: IncomingConnection, network: string, drop: () => void): void {
    this.#drops.set(connection, drop);
    this.#bySource.add(connection, network);
    const oldest = this.#bySource.size > this.#most ? this.#bySource.oldestOfFullest : undefined;
    if (oldest !== undefined) this.#drops.get(oldest)?.();
  }

  delete(connection: IncomingConnection): void {
    if (this.#drops.delete(connection)) this.#bySource.delete(connection);
  }
}

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

export interface PortConnectionsOptions {
  /** Maximum size of a request's header, bytes. */
  readonly headerLimit: number;
  /** How long a connection may take until its request has come, ms. */
  readonly deadlineMs: number;
  /**
   * Connections of this port whose request has not come. One more drops the oldest of the network that has most: real
   * clients take milliseconds.
   */
  readonly maxWaiting: number;
  /** The waiting connections of all TCP ports together, which have a bound of their own. Absent for a unix socket. */
  readonly waiting: WaitingConnections | undefined;
  /** Present: many connections that come at once are read in turns. */
  readonly turns?: TurnQueue;
  /** The deadline has passed. */
  onLate(connection: IncomingConnection): void;
  /** One was dropped for a newer one; it is destroyed already. */
  onDropped(): void;
}

/**
 * The connections that one port has accepted: in the state `request`, which are few and have a deadline, and in the
 * state `open`. Node checks its own timeouts for headers from time to time only, and not at all in an http.Server that
 * does not listen.
 */
export class PortConnections {
  readonly #options: PortConnectionsOptions;
  readonly #all = new Queue<IncomingConnection>();
  /** Those whose request has not come, except those that are set aside; in the order of arrival. */
  readonly #waiting = new BySource<IncomingConnection>();
  readonly #requests: RequestReader;
  #whenEmpty: (() => void) | undefined;

  constructor(options: PortConnectionsOptions, handler: RequestHandler) {
    this.#options = options;
    this.#requests = new RequestReader(options.headerLimit, handler);
  }

  get size(): number {
    return this.#all.size;
  }

  /** The number of connections whose request has not come, except those that are set aside. */
  get waiting(): number {
    return this.#waiting.size;
  }

  /**
   * Reads the request of a connection, and holds it until it closes; its socket has an error listener from now on.
   * `onClosedEarly`: the client has closed it before its request had come.
   */
  take(connection: IncomingConnection, onClosedEarly?: () => void): void {
    const { deadlineMs, maxWaiting, waiting, turns, onLate } = this.#options;
    const { socket, network } = connection;
    socket.on("error", ignore);
    socket.on("close", () => {
      if (this.#remove(connection)) onClosedEarly?.();
    });
    this.#all.join(connection.place);
    this.#waiting.add(connection, network);
    connection.setDeadline(deadlineMs, () => onLate(connection));
    if (this.#waiting.size > maxWaiting) this.#drop(this.#waiting.oldestOfFullest);
    if (waiting !== undefined && this.#waiting.has(connection)) {
      waiting.add(connection, network, () => this.#drop(connection));
    }
    const read = (): void => {
      if (!socket.destroyed) this.#requests.read(connection);
    };
    if (turns === undefined) read();
    else turns.run(read);
  }

  /**
   * From now on the client waits for the server: the connection no longer counts as waiting for a request. Its deadline
   * stays. The caller has to bound how many may do so at once.
   */
  setAside(connection: IncomingConnection): void {
    this.#waiting.delete(connection);
    this.#options.waiting?.delete(connection);
  }

  /** The request has come. Returns true the first time: each connection makes one request. */
  requestReceived(connection: IncomingConnection): boolean {
    connection.clearDeadline();
    this.setAside(connection);
    if (connection.state !== "request") return false;
    connection.state = "open";
    return true;
  }

  /** Ends a connection whose request has not come. */
  dismiss(connection: IncomingConnection): void {
    this.requestReceived(connection);
    connection.socket.destroy();
  }

  /** Ends all connections whose request has not come. */
  destroyWaiting(): void {
    for (const connection of this.#all) if (connection.state === "request") this.dismiss(connection);
  }

  /** Resets every connection, so that no client takes the part that it has received for the whole. */
  resetAll(): void {
    for (const connection of this.#all) {
      this.requestReceived(connection);
      resetSocket(connection.socket);
    }
  }

  /** Resolves when the last connection has closed, or after `deadlineMs`. */
  async empty(deadlineMs: number): Promise<void> {
    if (this.#all.size === 0) return;
    await new Promise<void>((resolve) => {
      const timer = setTimeout(resolve, deadlineMs);
      this.#whenEmpty = () => {
        clearTimeout(timer);
        resolve();
      };
    });
  }

  #drop(connection: IncomingConnection | undefined): void {
    if (connection === undefined) return;
    this.dismiss(connection);
    this.#options.onDropped();
  }

  /** Returns true if the request had not come. */
  #remove(connection: IncomingConnection): boolean {
    connection.place.leave();
    const hadNoRequest = this.requestReceived(connection);
    connection.state = "closed";
    if (this.#all.size === 0) this.#whenEmpty?.();
    return hadNoRequest;
  }
}

function ignore(): void {}

// ── the one request of a connection ──────────────────────────────────────────────────────────────────────────────────

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
 * Reads one request of each connection, and no byte behind its header. Node's parser would go on: it parses all bytes
 * of one turn of the loop, which can be thousands of requests in a packet, and makes two objects for each. The bytes
 * behind the header stay unread in the connection. A usual CONNECT in one piece does not need that parser.
 */
class RequestReader {
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
        header.on("error", ignore); // errors of the header come as `clientError`
        header.once("close", release); // the parser wants no more of it
        this.#http.emit("connection", header);
        startsLikeHttp2 = piece[0] === LETTER_P;
      }
      feedParser(header, bytes);
      if (startsLikeHttp2 && end.hasEnded) setImmediate(onHttp2, header);
    };
    // Node's parser wants more bytes behind the empty line of a request that could be the beginning of HTTP/2.
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
