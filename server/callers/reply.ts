import type { Duplex } from "node:stream";
import { TLSSocket } from "node:tls";
import { answerAndEnd } from "../../shared/http/connection.ts";
import { NO_PROXY_REQUEST, UNKNOWN_CODING } from "../../shared/http/forward.ts";
import { proxyStatus } from "../../shared/http/response-fields.ts";
import { CONNECTION_BYTES } from "../../shared/limits/memory-account.ts";
import { valuesOf } from "../../shared/listen/first-request.ts";
import type { IncomingConnection } from "../../shared/listen/incoming-connection.ts";
import { type CulvertError, outcome, printable } from "../../shared/outcomes.ts";
import { resetSocket } from "../../shared/relay/reset.ts";
import type { ConnectHeader } from "../listeners/usual-connect.ts";
import type { ServerContext } from "../tunnels/context.ts";
import { type CallerHost, challenges } from "./authenticate.ts";
import type { CallerEnd } from "./caller-end.ts";

// The answers of the callers' side in HTTP/1, which are written on the raw socket.

/** kube-apiserver expects exactly this: 200 and no headers. */
const ESTABLISHED = Buffer.from("HTTP/1.1 200 Connection Established\r\n\r\n", "latin1");

/** The caller of a CONNECT over HTTP/1, which has the whole connection. */
export class HttpCaller implements CallerEnd {
  readonly stream: Duplex;
  readonly connection: IncomingConnection;
  readonly idleBytes: number;
  /** A TLS record of its own keeps the bytes of the target apart from the answer; sockets in clear need a gap. */
  readonly gapMs: number;
  readonly #host: CallerHost;

  constructor(connection: IncomingConnection, host: CallerHost, { options }: ServerContext) {
    const { socket } = connection;
    this.stream = socket;
    this.connection = connection;
    this.idleBytes = CONNECTION_BYTES[host.kind];
    this.gapMs = socket instanceof TLSSocket ? 0 : options.establishedGapMs;
    this.#host = host;
  }

  establish(onWritten?: () => void): void {
    this.stream.write(ESTABLISHED, onWritten);
  }

  refuse(refusal: CulvertError): void {
    refuseConnect(this.stream, refusal, challenges(this.#host));
  }

  reset(): void {
    resetSocket(this.stream);
  }
}

/** A caller that has begun with HTTP/2's preface, and gets no session. Its refusal counts as that of a CONNECT. */
export class PrefaceCaller extends HttpCaller {
  override refuse({ message }: CulvertError): void {
    refuseHttp2(this.stream, message);
  }
}

export const ONLY_CONNECT =
  "only CONNECT is served here: this is the port of culvert's callers, agents connect to --agent-port";

const NO_WHOLE_URL =
  "only CONNECT is served here, and this request asks for a whole URL, as of a web proxy; curl: add --proxytunnel";

/** Requests that are not read as a CONNECT of one caller: they never become a connection with an outcome. */
const HTTP_REFUSALS = {
  method: { status: 405, sentence: ONLY_CONNECT },
  wholeUrl: { status: 405, sentence: NO_WHOLE_URL },
  notForProxy: { status: 400, sentence: NO_PROXY_REQUEST },
  unknownCoding: { status: 501, sentence: UNKNOWN_CODING },
  malformed: { status: 400, sentence: "the request is not valid HTTP/1" },
  // RFC 9112 §3.2.
  twoHosts: { status: 400, sentence: "the request has two Host lines: send one" },
  twoCredentials: { status: 400, sentence: "the request has two Proxy-Authorization lines: send one" },
  headerTooLarge: { status: 431, sentence: "the request header is too large" },
  headerTimeout: { status: 408, sentence: "the request header did not arrive in time" },
} as const;
export type CallerHttpRefusal = keyof typeof HTTP_REFUSALS;

/** Why a request is none of a caller, whoever sends it; `undefined`: it may be one. */
export function faultIn({ httpVersionMajor, rawHeaders }: ConnectHeader): CallerHttpRefusal | undefined {
  // Node's parser accepts "CONNECT … HTTP/2.0" and 0.9, too.
  if (httpVersionMajor !== 1) return "malformed";
  if (valuesOf(rawHeaders, "host").length > 1) return "twoHosts";
  return valuesOf(rawHeaders, "proxy-authorization").length > 1 ? "twoCredentials" : undefined;
}

/** Why no request was read of the connection. */
export function readFault({ code }: NodeJS.ErrnoException): CallerHttpRefusal {
  return code === "HPE_HEADER_OVERFLOW" ? "headerTooLarge" : "malformed";
}

/** Status and header fields of a refused CONNECT, in any version of HTTP. */
interface Refusal {
  readonly status: number;
  readonly fields: readonly (readonly [name: string, value: string])[];
}

/**
 * The answer to a CONNECT that is refused; `undefined`: its outcome has none. `challenges`: the credentials that a 407
 * asks for (RFC 9110 §15.5.8).
 */
export function refusalOf(error: CulvertError, challenges: readonly string[]): Refusal | undefined {
  const { http: status, proxyStatus: type } = outcome(error.code);
  if (status === undefined) return undefined;
  const { retryAfterMs, fault, refusedBy } = error;
  const fields: [name: string, value: string][] = [];
  if (status === 407) for (const challenge of challenges) fields.push(["Proxy-Authenticate", challenge]);
  if (retryAfterMs !== undefined) fields.push(["Retry-After", String(Math.ceil(retryAfterMs / 1_000))]);
  fields.push(["Proxy-Status", proxyStatus({ error: type, fault, refusedBy }, error.message)]);
  return { status, fields };
}

/** Answers a CONNECT over HTTP/1 with its outcome, or closes the socket if the caller has gone. */
export function refuseConnect(socket: Duplex, error: CulvertError, challenges: readonly string[]): void {
  const refusal = refusalOf(error, challenges);
  if (refusal === undefined) {
    socket.destroy();
    return;
  }
  const lines = refusal.fields.map(([name, value]) => `${name}: ${value}\r\n`);
  send(socket, refusal.status, error.message, lines.join(""));
}

const EMPTY_SETTINGS = Buffer.from([0, 0, 0, 4, 0, 0, 0, 0, 0]);
const GOAWAY = 7;
const HTTP_1_1_REQUIRED = 0xd;

/** SETTINGS, and a GOAWAY whose debug data is the sentence (RFC 9113 §6.8). */
function refuseHttp2(socket: Duplex, sentence: string): void {
  const debug = Buffer.from(printable(sentence), "latin1");
  const goaway = Buffer.alloc(17);
  goaway.writeUIntBE(8 + debug.length, 0, 3);
  goaway.writeUInt8(GOAWAY, 3);
  goaway.writeUInt32BE(HTTP_1_1_REQUIRED, 13);
  answerAndEnd(socket, Buffer.concat([EMPTY_SETTINGS, goaway, debug]));
}

export function sentenceOf(refusal: CallerHttpRefusal): string {
  return HTTP_REFUSALS[refusal].sentence;
}

/**
 * Answers a request that is no CONNECT. With Proxy-Status, since a proxy on an agent's path that accepts CONNECT alone
 * gives a similar answer.
 */
export function refuseRequest(socket: Duplex, refusal: CallerHttpRefusal): void {
  const { status, sentence } = HTTP_REFUSALS[refusal];
  const allow = status === 405 ? "Allow: CONNECT\r\n" : "";
  const headers = `${allow}Proxy-Status: ${proxyStatus({ error: "http_request_error" }, sentence)}\r\n`;
  send(socket, status, sentence, headers);
}

/** The sentence is in the status line, since kubectl shows its user nothing else. */
function send(socket: Duplex, status: number, sentence: string, headers: string): void {
  const reason = printable(sentence);
  const body = `${reason}\n`;
  answerAndEnd(
    socket,
    `HTTP/1.1 ${status} ${reason}\r\n${headers}Connection: close\r\nContent-Type: text/plain\r\n` +
      `Content-Length: ${body.length}\r\n\r\n${body}`,
  );
}
