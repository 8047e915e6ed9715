/**
 * Why a session refused something, or ended. `protocol` and `flood`: the peer has broken the protocol, or sent more
 * idle frames than any honest peer would, and the session has ended. `exhausted`: stream ids are never used twice, so a
 * new session is needed. `pool_full`: all sessions of this process together hold too much.
 */
type YamuxErrorCode = "protocol" | "flood" | "go_away" | "exhausted" | "overloaded" | "pool_full" | "closed";

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
