import { STATUS_CODES } from "node:http";
import type { Socket } from "node:net";
import { Duplex } from "node:stream";
import { networkOf } from "../address/network.ts";
import { BySource } from "../basics/by-source.ts";
import { TurnQueue } from "../basics/timers.ts";
import { answerAndEnd, HeaderEnd } from "../http/connection.ts";
import { fileLimit } from "../limits/file-descriptors.ts";
import { HANDSHAKE_RECORD } from "../listen/client-hello.ts";

/**
 * Maximum number of connections of one port. A probe or a scrape takes milliseconds: only connections that are held can
 * become this many. Of a small limit of open files they are a sixteenth, since callers, agents and dials need them
 * more.
 */
export const MAX_CONNECTIONS = 256;
const FRACTION_OF_FILES = 1 / 16;
const MIN_CONNECTIONS = 4;

export function maxConnections(limit = fileLimit()): number {
  if (limit === undefined) return MAX_CONNECTIONS;
  return Math.max(MIN_CONNECTIONS, Math.min(MAX_CONNECTIONS, Math.floor(limit * FRACTION_OF_FILES)));
}

interface ConnectionsOptions {
  readonly max: number;
  readonly onConnection: (connection: Duplex) => void;
  /** A connection was dropped, because there were too many. */
  readonly onDropped: () => void;
}

/**
 * The open connections of a health or admin port. Above the maximum, a new connection replaces the oldest one of the
 * network that has most. A flood therefore replaces its own connections, and probes are still answered.
 */
export class AdminConnections {
  readonly #options: ConnectionsOptions;
  readonly #all = new BySource<Duplex>();
  readonly #turns = new TurnQueue();

  constructor(options: ConnectionsOptions) {
    this.#options = options;
  }

  get size(): number {
    return this.#all.size;
  }

  add(connection: Duplex & Pick<Socket, "remoteAddress">): void {
    const { max, onConnection } = this.#options;
    connection.on("error", () => {}); // an error closes it, which is enough
    connection.on("close", () => this.#all.delete(connection));
    this.#all.add(connection, networkOf(connection.remoteAddress ?? ""));
    if (this.#all.size > max) this.#dropOne();
    this.#turns.run(() => {
      if (!connection.destroyed) onConnection(connection);
    });
  }

  destroyAll(): void {
    for (const connection of this.#all) connection.destroy();
  }

  #dropOne(): void {
    const connection = this.#all.oldestOfFullest;
    if (connection === undefined) return;
    this.#all.delete(connection);
    connection.destroy();
    this.#options.onDropped();
  }
}

/** Deadline from accept to the whole request, ms. Probes take milliseconds. */
export const REQUEST_MS = 10_000;
/** Deadline from the request to the end of its answer, ms. Prometheus' default for a scrape is 10 s. */
export const ANSWER_MS = 60_000;
/** Largest body of a request, bytes. */
export const BODY_LIMIT = 1_024;
/**
 * Time to read the answer for a peer that has sent more than its request, ms. The rest is not read; closing at once
 * would send a RST, which could destroy the answer.
 */
const UNREAD_MS = 1_000;

/**
 * A Duplex that passes the first request of a connection, and no byte after it, to Node's HTTP parser. The parser would
 * otherwise go on with all requests that came in one packet, possibly thousands, and answer each. Writes of the
 * parser's side go to the connection.
 */
export class SingleRequest extends Duplex {
  readonly #connection: Duplex;
  readonly #header = new HeaderEnd();
  #bodyBytes = 0;
  #isUnderstood = false;
  #isRefused = false;
  #deadline: NodeJS.Timeout | undefined;

  /** The connection has an error listener. */
  constructor(connection: Duplex) {
    super();
    this.#connection = connection;
    this.#endIn(REQUEST_MS, () => this.#onTooSlow());
    this.on("error", () => {}); // an error ends it, which is enough
  }

  /** Starts reading. Call it when the parser listens. */
  begin(): void {
    this.#connection.on("readable", this.#onReadable);
    this.#connection.on("end", this.#onEnd);
    this.#connection.on("close", () => this.destroy());
  }

  /** Call it when the parser has read the header: `bodyBytes` after it, at most `BODY_LIMIT`, belong to the request. */
  onUnderstood(bodyBytes: number): void {
    this.#isUnderstood = true;
    this.#bodyBytes = bodyBytes;
    if (bodyBytes === 0) this.#endIn(ANSWER_MS);
    setImmediate(this.#onReadable); // the parser calls this, and must not be called back in between
  }

  /** Answers a peer whose request cannot be parsed, and ends. Later bytes are not parsed. */
  refuse(answer: string): void {
    if (this.destroyed || this.writableEnded) return;
    this.#isRefused = true;
    this.end(answer, "latin1");
  }

  override _read(): void {}

  override _write(chunk: Buffer, encoding: BufferEncoding, done: (error?: Error | null) => void): void {
    this.#connection.write(chunk, encoding, done);
  }

  override _final(done: (error?: Error | null) => void): void {
    const connection = this.#connection;
    connection.end(() => {
      connection.off("readable", this.#onReadable);
      if (connection.readableLength === 0) answerAndEnd(connection, "");
      else this.#endIn(UNREAD_MS);
      done();
    });
  }

  override _destroy(error: Error | null, done: (error: Error | null) => void): void {
    clearTimeout(this.#deadline);
    this.#connection.destroy();
    done(error);
  }

  readonly #onReadable = (): void => {
    while (!this.destroyed && !this.#isRefused && (!this.#header.hasEnded || this.#bodyBytes > 0)) {
      const piece: Buffer | null = this.#connection.read();
      if (piece === null) return;
      const length = this.#take(piece);
      // A copy, since one byte of a body would keep a chunk of 64 KiB alive.
      if (length < piece.length) this.#connection.unshift(Buffer.from(piece.subarray(length, length + BODY_LIMIT)));
      this.push(piece.subarray(0, length));
      if (this.#header.hasEnded && !this.#isUnderstood) setImmediate(this.#onWhole);
    }
  };

  /** Node's parser waits for more after the header if the request looks like the preface of HTTP/2. */
  readonly #onWhole = (): void => {
    if (!this.#isUnderstood) this.refuse(NO_HTTP);
  };

  /** The number of bytes of the chunk that belong to the request. */
  #take(piece: Buffer): number {
    if (!this.#header.hasEnded) return this.#header.push(piece);
    const length = Math.min(piece.length, this.#bodyBytes);
    this.#bodyBytes -= length;
    if (this.#bodyBytes === 0) this.#endIn(ANSWER_MS);
    return length;
  }

  /** A peer that ends its side after a whole request still gets the answer. */
  readonly #onEnd = (): void => {
    if (!this.#header.hasEnded || this.#bodyBytes > 0) this.destroy();
  };

  #onTooSlow(): void {
    this.#endIn(UNREAD_MS);
    this.refuse(TOO_SLOW);
  }

  #endIn(ms: number, end: () => void = () => this.destroy()): void {
    clearTimeout(this.#deadline);
    this.#deadline = setTimeout(end, ms).unref();
  }
}

/** The whole answer, header and body, to a peer whose request does not reach a route. */
function refusal(status: number, sentence: string): string {
  const body = `${sentence}\n`;
  const header = `Content-Type: text/plain\r\nContent-Length: ${body.length}\r\nConnection: close`;
  return `HTTP/1.1 ${status} ${STATUS_CODES[status]}\r\n${header}\r\n\r\n${body}`;
}

const NO_HTTP = refusal(400, "this is not an HTTP/1.1 request: this port speaks plain HTTP, for example GET /readyz");
export const CONNECT_TO_HEALTH = refusal(
  405,
  "this is the health port, which takes no CONNECT: callers use the server's --server-port",
);
export const CONNECT_TO_ADMIN = refusal(
  405,
  "this is the admin port (/status, /metrics), which takes no CONNECT: callers use the server's --server-port",
);
export const EXPECTATION = refusal(417, "this port knows no other Expect than 100-continue: leave the header out");
const TOO_SLOW = refusal(408, "the request did not arrive in time");
const TLS = refusal(400, "this is TLS, and this port speaks plain HTTP: use http:// and not https://");
const LARGE = refusal(431, "the request header is too large for this port");

/** The answer to bytes that Node's HTTP parser has refused; `undefined`: the peer has closed the connection. */
export function refusalOf(error: NodeJS.ErrnoException & { readonly rawPacket?: Buffer }): string | undefined {
  const { code = "", rawPacket } = error;
  if (code === "HPE_HEADER_OVERFLOW") return LARGE;
  if (!code.startsWith("HPE_") || code === "HPE_INVALID_EOF_STATE") return undefined;
  return rawPacket?.[0] === HANDSHAKE_RECORD ? TLS : NO_HTTP;
}
