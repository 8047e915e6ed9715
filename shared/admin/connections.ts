import { type Server as HttpServer, STATUS_CODES } from "node:http";
import type { Socket } from "node:net";
import { networkOf } from "../address/network.ts";
import { BySource } from "../basics/by-source.ts";
import { TurnQueue } from "../basics/timers.ts";
import { fileLimit } from "../limits/file-descriptors.ts";
import { HANDSHAKE_RECORD } from "../listen/client-hello.ts";
import { FirstRequest, HTTP_2 } from "../listen/first-request.ts";
import { IncomingConnection } from "../listen/incoming-connection.ts";

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
  readonly onConnection: (connection: Socket) => void;
  /** A connection was dropped, because there were too many. */
  readonly onDropped: () => void;
}

/**
 * The open connections of a health or admin port. Above the maximum, a new connection replaces the oldest one of the
 * network that has most. A flood therefore replaces its own connections, and probes are still answered.
 */
export class AdminConnections {
  readonly #options: ConnectionsOptions;
  readonly #all = new BySource<Socket>();
  readonly #turns = new TurnQueue();

  constructor(options: ConnectionsOptions) {
    this.#options = options;
  }

  get size(): number {
    return this.#all.size;
  }

  add(connection: Socket): void {
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

/** Reads the one request of a connection of this port, and gives it to the parser of `server`, within its time. */
export function readRequest(socket: Socket, server: HttpServer): FirstRequest {
  const connection = new IncomingConnection(socket);
  connection.handedOn(socket);
  const first = new FirstRequest(connection, server);
  connection.setDeadline(REQUEST_MS, () => first.refuse(TOO_SLOW));
  first.begin();
  return first;
}

/** Call it when the parser has read the header: `bodyBytes` after it belong to the request. */
export function readBody(first: FirstRequest, bodyBytes: number): void {
  first.readBody(bodyBytes, () => first.connection.setDeadline(ANSWER_MS, () => first.destroy()));
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
  if (code === HTTP_2) return NO_HTTP;
  if (!code.startsWith("HPE_") || code === "HPE_INVALID_EOF_STATE") return undefined;
  return rawPacket?.[0] === HANDSHAKE_RECORD ? TLS : NO_HTTP;
}
