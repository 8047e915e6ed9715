import { constants, type ServerHttp2Stream } from "node:http2";
import type { Duplex } from "node:stream";
import { proxyStatus } from "../../shared/http/response-fields.ts";
import type { IncomingConnection } from "../../shared/listen/incoming-connection.ts";
import { failOnReset, lingerAfterAnswer } from "../../shared/node/http2.ts";
import { type CulvertError, printable } from "../../shared/outcomes.ts";
import { type CallerHost, challenges } from "./authenticate.ts";
import type { CallerEnd } from "./caller-end.ts";
import { ONLY_CONNECT, refusalOf } from "./reply.ts";

const { NGHTTP2_CANCEL, NGHTTP2_CONNECT_ERROR, NGHTTP2_NO_ERROR } = constants;

/** Bytes of the process that one stream takes while it carries nothing; measured. */
const STREAM_BYTES = 10 * 1024;

/** The caller of a CONNECT that is one stream of an HTTP/2 connection. */
export class Http2Caller implements CallerEnd {
  readonly stream: Duplex;
  readonly connection: IncomingConnection;
  readonly idleBytes = STREAM_BYTES;
  /** Frames keep the bytes of the target apart from the answer. */
  readonly gapMs = 0;
  readonly #stream: ServerHttp2Stream;
  readonly #host: CallerHost;

  constructor(stream: ServerHttp2Stream, connection: IncomingConnection, host: CallerHost) {
    this.stream = stream;
    this.#stream = stream;
    this.connection = connection;
    this.#host = host;
    failOnReset(stream, "caller");
  }

  establish(onWritten?: () => void): void {
    if (isOpen(this.#stream)) this.#stream.respond({ ":status": 200 });
    onWritten?.();
  }

  refuse(refusal: CulvertError): void {
    const answer = refusalOf(refusal, challenges(this.#host));
    if (answer === undefined) this.#stream.close(NGHTTP2_CANCEL);
    else refuseStream(this.#stream, answer.status, answer.fields, refusal.message);
  }

  reset(): void {
    this.#stream.close(NGHTTP2_CONNECT_ERROR);
  }
}

/** Answers a request that is neither a CONNECT nor one of gRPC. */
export function refuseRequest(stream: ServerHttp2Stream): void {
  const status = proxyStatus({ error: "http_request_error" }, ONLY_CONNECT);
  refuseStream(
    stream,
    405,
    [
      ["Allow", "CONNECT"],
      ["Proxy-Status", status],
    ],
    ONLY_CONNECT,
  );
}

type Fields = readonly (readonly [name: string, value: string])[];

function refuseStream(stream: ServerHttp2Stream, status: number, fields: Fields, sentence: string): void {
  if (!isOpen(stream)) return;
  const headers: Record<string, string | number | string[]> = { ":status": status, "content-type": "text/plain" };
  for (const [name, value] of fields) {
    const key = name.toLowerCase();
    const before = headers[key];
    headers[key] = before === undefined ? value : [String(before), value];
  }
  stream.respond(headers);
  // Later bytes of the caller are of no use (RFC 9113 §8.1).
  stream.end(`${printable(sentence)}\n`, () => stream.close(NGHTTP2_NO_ERROR));
  lingerAfterAnswer(stream);
}

function isOpen(stream: ServerHttp2Stream): boolean {
  return !stream.destroyed && !stream.closed;
}
