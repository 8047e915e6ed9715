/** Why a session refused something, or ended. */
export type YamuxErrorCode =
  /** The peer broke the protocol; the session has ended. */
  | "protocol"
  /** The peer sent more frames that carry nothing than any honest peer would; the session has ended. */
  | "flood"
  /** One end has said go-away: no new streams in this session. */
  | "go_away"
  /** The stream ids of this session are used up: a new session is needed. */
  | "exhausted"
  /** Too many streams. */
  | "overloaded"
  /** All sessions of this process together hold too much; it is no fault of this one. */
  | "pool_full"
  /** The session has ended. */
  | "closed";

export class YamuxError extends Error {
  override readonly name = "YamuxError";
  readonly reason: YamuxErrorCode;

  constructor(reason: YamuxErrorCode, message: string, options?: ErrorOptions) {
    super(message, options);
    this.reason = reason;
  }
}

/** What ends a session. Other errors, thrown by listeners that the session's calls run, are bugs and pass through. */
export function isViolation(error: unknown): error is YamuxError {
  return error instanceof YamuxError && (error.reason === "protocol" || error.reason === "flood");
}

/** Ends a stream when the peer resets it, with the code that sockets use for the same thing. */
export function streamReset(message = "the peer reset the stream"): NodeJS.ErrnoException {
  return Object.assign(new Error(message), { code: "ECONNRESET" });
}

/** Ends a stream when its session is lost. */
export function sessionLost(cause: Error | undefined): NodeJS.ErrnoException {
  const detail = cause === undefined ? "" : `: ${cause.message}`;
  return Object.assign(new Error(`the session ended${detail}`, { cause }), { code: "ESESSION" });
}
