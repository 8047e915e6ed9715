import type { Duplex } from "node:stream";

// Undocumented behaviour of Node's HTTP and of the package ws. docs/node.md lists each behaviour, why it is used, and
// its test.

/**
 * Gives bytes to the HTTP parser of a stream that was handed to an `http.Server`. The parser listens to `data`, and has
 * read them when this returns; the buffer of the stream is not used.
 */
export function feedParser(stream: Duplex, bytes: Buffer): void {
  stream.emit("data", bytes);
}

/** The listener that has taken the place of ws's own. */
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
