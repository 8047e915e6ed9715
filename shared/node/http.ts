import type { ServerHttp2Session } from "node:http2";
import type { Duplex } from "node:stream";

// What Node's HTTP and the package ws do and do not document. docs/node.md lists each behaviour, why it is used, and
// its test.

/**
 * Gives bytes to the HTTP parser of a stream that was handed to an `http.Server`. The parser listens to `data`, and has
 * read them when this returns; the buffer of the stream is not used.
 */
export function feedParser(stream: Duplex, bytes: Buffer): void {
  stream.emit("data", bytes);
}

/** Time for the last frames of a session to leave on a slow line, and for the peer to end its socket as well, ms. */
const LINGER_MS = 10_000;

/**
 * Makes `destroy` of an HTTP/2 session wait until the callback that runs now has returned, if it is called with an
 * error. Inside a callback of the session, Node.js 22.23 ends the process if the rest of the same read opens a stream
 * and ends it; and Node itself destroys a session there when its peer says GOAWAY with an error. Without an error it is
 * the end of a session that was closed before, which may not wait.
 *
 * Either way the socket is destroyed a moment later: Node would wait for ever for a peer that does not end its side.
 */
export function deferDestroy(session: ServerHttp2Session, socket: Duplex): void {
  const destroy = session.destroy.bind(session);
  session.destroy = (error, code) => {
    setTimeout(() => socket.destroy(), LINGER_MS).unref();
    if (error) setImmediate(destroy, error, code);
    else destroy(error, code);
  };
}

/** What has taken the place of ws's listener. */
export interface TakenData {
  /** Gives bytes to ws. */
  toWs(bytes: Buffer): void;
  /** Delivers what a paused socket still holds. */
  readRest(): void;
}

/**
 * Takes the place of ws's own `data` listener on the socket of a WebSocket. `undefined`: the socket has no listener or
 * several, so that nobody can tell which is ws's, and nothing has changed.
 */
export function takeDataListener(socket: Duplex, onData: (chunk: Buffer) => void): TakenData | undefined {
  const [ofWs, ...others] = socket.listeners("data");
  if (ofWs === undefined || others.length > 0) return undefined;
  const readRest = (): void => {
    // Node.js 26 returns one chunk for each read(), older versions return all of them together.
    for (let rest: Buffer | null = socket.read(); rest !== null; rest = socket.read()) onData(rest);
  };
  socket.off("data", ofWs as (chunk: Buffer) => void);
  socket.on("data", onData);
  socket.prependOnceListener("close", readRest); // ws reads it otherwise, and takes it from the middle of a frame
  return { toWs: (bytes) => ofWs.call(socket, bytes), readRest };
}
