/** Why a session refused something, or ended. */
type YamuxErrorCode =
  /** The peer broke the protocol; the session has ended. */
  | "protocol"
  /** The peer sent more idle frames than any honest peer would; the session has ended. */
  | "flood"
  /** One side has sent a go-away: no new streams in this session. */
  | "go_away"
  /** The stream ids of this session are used up: a new session is needed. */
  | "exhausted"
  /** Too many streams. */
  | "overloaded"
  /** All sessions of this process together hold too much. */
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

/** Does the error end the session? Others, thrown by listeners that the session calls, are bugs and pass through. */
export function isViolation(error: unknown): error is YamuxError {
  return error instanceof YamuxError && (error.reason === "protocol" || error.reason === "flood");
}

/** The error of a stream that the peer has reset, with the code that sockets use. */
export function streamReset(message = "the peer reset the stream"): NodeJS.ErrnoException {
  return Object.assign(new Error(message), { code: "ECONNRESET" });
}

/** The error of a stream whose session is lost. */
export function sessionLost(cause: Error | undefined): NodeJS.ErrnoException {
  const detail = cause === undefined ? "" : `: ${cause.message}`;
  return Object.assign(new Error(`the session ended${detail}`, { cause }), { code: "ESESSION" });
}
