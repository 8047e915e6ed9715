import type { IncomingHttpHeaders, ServerHttp2Stream } from "node:http2";
import { lingerAfterAnswer } from "../node/http2.ts";
import { printable } from "../outcomes.ts";

/** Statuses of gRPC ("Status codes and their use in gRPC"). */
const STATUS = {
  ok: 0,
  cancelled: 1,
  invalid: 3,
  deadlineExceeded: 4,
  alreadyExists: 6,
  permissionDenied: 7,
  resourceExhausted: 8,
  unimplemented: 12,
  internal: 13,
  unavailable: 14,
  unauthenticated: 16,
} as const;
export type GrpcStatus = keyof typeof STATUS;

/** The trailers of a call. */
export function trailersOf(status: GrpcStatus, sentence = ""): Record<string, string> {
  const code = { "grpc-status": String(STATUS[status]) };
  return sentence === "" ? code : { ...code, "grpc-message": printable(sentence).replaceAll("%", "%25") };
}

/** Whether a request is a call of gRPC, of whatever method. */
export function isGrpc(headers: IncomingHttpHeaders): boolean {
  return headers[":method"] === "POST" && /^application\/grpc(?:$|[+;])/.test(headers["content-type"] ?? "");
}

/**
 * The server's side of one gRPC call: the header before its first message, and the status after its last ("gRPC over
 * HTTP2", Responses). Owns no bytes: messages are read from and written to `stream`.
 */
export class GrpcCall {
  readonly stream: ServerHttp2Stream;
  #trailers: Record<string, string> = {};

  constructor(stream: ServerHttp2Stream) {
    this.stream = stream;
    stream.on("error", ignore); // "close" follows
  }

  /** The call has not ended, and its caller is there. */
  get isOpen(): boolean {
    const { closed, destroyed, writableEnded } = this.stream;
    return !closed && !destroyed && !writableEnded;
  }

  /** Sends the header; `metadata`: fields for the caller. */
  respond(metadata: Record<string, string> = {}): void {
    const { stream } = this;
    if (!this.isOpen || stream.headersSent) return;
    stream.once("wantTrailers", () => stream.sendTrailers(this.#trailers));
    stream.respond({ ...ANSWER, ...metadata }, { waitForTrailers: true });
  }

  /**
   * Ends the call when all messages are written; without any, header and status are one ("Trailers-Only"). A peer that
   * has the status ends its side, as gRPC libraries do; a reset at once (RFC 9113 §8.1) would overtake the trailers.
   */
  end(status: GrpcStatus, sentence = ""): void {
    if (!this.isOpen) return;
    this.#trailers = trailersOf(status, sentence);
    if (this.stream.headersSent) this.stream.end();
    else this.stream.respond({ ...ANSWER, ...this.#trailers }, { endStream: true });
    lingerAfterAnswer(this.stream);
  }
}

const ANSWER = { ":status": 200, "content-type": "application/grpc" } as const;

function ignore(): void {}
