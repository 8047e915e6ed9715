import type { Duplex } from "node:stream";
import { answerAndEnd } from "../../shared/http/connection.ts";
import { type ProxyStatus, proxyStatus } from "../../shared/http/response-fields.ts";
import { CONNECTION_BYTES } from "../../shared/limits/memory-account.ts";
import type { IncomingConnection } from "../../shared/listen/incoming-connection.ts";
import type { Endpoint } from "../../shared/listen/preface.ts";
import { type CulvertError, outcome, printable } from "../../shared/outcomes.ts";
import { resetSocket } from "../../shared/relay/reset.ts";
import { claimedBy } from "../../shared/tls/identity.ts";
import type { ServerContext } from "../tunnels/context.ts";
import { type CallerHost, challenges } from "./authenticate.ts";
import type { CallerEnd } from "./caller-end.ts";

// The answers of the callers' side in HTTP/1, which are written on the raw socket.

/** kube-apiserver expects exactly this: 200 and no headers. */
const ESTABLISHED = Buffer.from("HTTP/1.1 200 Connection Established\r\n\r\n", "latin1");

/** The caller of a CONNECT over HTTP/1, which has the whole connection. */
export class HttpCaller implements CallerEnd {
  readonly stream: Duplex;
  readonly source: Endpoint | undefined;
  readonly idleBytes: number;
  /** A TLS record of its own keeps the bytes of the target apart from the answer; plain sockets need a gap. */
  readonly gapMs: number;
  readonly #host: CallerHost;

  constructor({ socket, source }: IncomingConnection, host: CallerHost, { options }: ServerContext) {
    const isUnix = host.kind === "unix";
    this.stream = socket;
    this.source = isUnix ? undefined : source;
    this.idleBytes = CONNECTION_BYTES[host.kind];
    this.gapMs = isUnix ? options.establishedGapMs : 0;
    this.#host = host;
  }

  claimedCertificate(): string | undefined {
    return claimedBy(this.stream);
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

const ONLY_CONNECT =
  "only CONNECT is served here: this is the port of culvert's callers, agents connect to --agent-port";

const NO_WHOLE_URL =
  "only CONNECT is served here, and this request asks for a whole URL, as of a web proxy; curl: add --proxytunnel";

/** Requests that are not read as a CONNECT of one caller: they never become a connection with an outcome. */
const HTTP_REFUSALS = {
  method: { status: 405, sentence: ONLY_CONNECT, header: onlyConnect(ONLY_CONNECT) },
  wholeUrl: { status: 405, sentence: NO_WHOLE_URL, header: onlyConnect(NO_WHOLE_URL) },
  malformed: { status: 400, sentence: "the request is not valid HTTP/1", header: "" },
  grpc: {
    status: 505,
    sentence:
      "the caller speaks gRPC (HTTP/2), and culvert takes HTTP CONNECT: in kube-apiserver's --egress-selector-config-file write proxyProtocol: HTTPConnect, and restart it",
    header: "",
  },
  // RFC 9112 §3.2.
  twoHosts: { status: 400, sentence: "the request has two Host lines: send one", header: "" },
  twoCredentials: { status: 400, sentence: "the request has two Proxy-Authorization lines: send one", header: "" },
  headerTooLarge: { status: 431, sentence: "the request header is too large", header: "" },
  headerTimeout: { status: 408, sentence: "the request header did not arrive in time", header: "" },
} as const;
export type CallerHttpRefusal = keyof typeof HTTP_REFUSALS;

/**
 * Answers a CONNECT with its outcome, or closes the socket if the caller has gone. `challenges`: the credentials that a
 * 407 asks for (RFC 9110 §15.5.8).
 */
export function refuseConnect(socket: Duplex, error: CulvertError, challenges: readonly string[]): void {
  const { http: status, proxyStatus: type } = outcome(error.code);
  if (status === undefined) {
    socket.destroy();
    return;
  }
  const asked = status === 407 ? challenges.map((challenge) => `Proxy-Authenticate: ${challenge}\r\n`).join("") : "";
  const { retryAfterMs } = error;
  const retryAfter = retryAfterMs === undefined ? "" : `Retry-After: ${Math.ceil(retryAfterMs / 1_000)}\r\n`;
  send(
    socket,
    status,
    error.message,
    `${asked}${retryAfter}${marked({ error: type, fault: error.fault, refusedBy: error.refusedBy }, error.message)}`,
  );
}

export function sentenceOf(refusal: CallerHttpRefusal): string {
  return HTTP_REFUSALS[refusal].sentence;
}

/** Answers a request that is no CONNECT. */
export function refuseRequest(socket: Duplex, refusal: CallerHttpRefusal): void {
  const { status, sentence, header } = HTTP_REFUSALS[refusal];
  send(socket, status, sentence, header);
}

/** With Proxy-Status, since a proxy on an agent's path that accepts CONNECT alone gives a similar answer. */
function onlyConnect(sentence: string): string {
  return `Allow: CONNECT\r\n${marked({ error: "http_request_error" }, sentence)}`;
}

function marked(status: ProxyStatus, sentence: string): string {
  return `Proxy-Status: ${proxyStatus(status, sentence)}\r\n`;
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
