import {
  type ClientHttp2Session,
  constants,
  type Http2Stream,
  performServerHandshake,
  type ServerHttp2Session,
} from "node:http2";
import type { Socket } from "node:net";
import type { Duplex } from "node:stream";
import { isBun } from "./engine.ts";

// Undocumented behaviour of node:http2. docs/node.md lists each behaviour, why it is used, and its test. Only code that
// is loaded with the first HTTP/2 connection imports this file.

type ServerOptions = NonNullable<Parameters<typeof performServerHandshake>[1]>;

/**
 * The HTTP/2 session of a client, whose preface is unread in `socket`: the TLS socket on `raw`, or `raw` itself. It
 * ends with the socket.
 */
export function serverSession(socket: Socket, raw: Socket, options: ServerOptions): ServerHttp2Session {
  // Otherwise the session never notices that its peer has ended.
  raw.allowHalfOpen = false;
  socket.allowHalfOpen = false;
  const unread = isBun ? takeUnread(socket) : [];
  // A session of Bun reads below the TLS stream, whose counter stands still: `TlsOverhead` would take that for a flood.
  if (isBun && socket !== raw) Object.defineProperty(socket, "bytesRead", { get: () => raw.bytesRead, set: () => {} });
  const session = performServerHandshake(socket, options);
  deferDestroy(session, socket);
  // The session has its listeners by then, and nothing has been read from the connection.
  if (unread.length > 0) process.nextTick(() => unread.forEach((chunk) => void socket.emit("data", chunk)));
  return session;
}

/** `bytes`: what the server may send on all streams together. A session on Bun would then open no window again. */
export function widenClientSession(session: ClientHttp2Session, bytes: number): void {
  if (!isBun) session.setLocalWindowSize(bytes);
}

/** A session of Bun reads from the connection, and does not see what is unread in the stream. */
function takeUnread(socket: Socket): Buffer[] {
  const unread: Buffer[] = [];
  for (let chunk: Buffer | null = socket.read(); chunk !== null; chunk = socket.read()) unread.push(chunk);
  return unread;
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
function deferDestroy(session: ServerHttp2Session, socket: Duplex): void {
  const destroy = session.destroy.bind(session);
  session.destroy = (error, code) => {
    setTimeout(() => socket.destroy(), LINGER_MS).unref();
    if (error) setImmediate(destroy, error, code);
    else destroy(error, code);
  };
}

/**
 * Ends a stream after the last bytes of its answer were written. Later bytes of the peer are dropped, since Node keeps
 * a stream, and its session, until it is read; and a peer that neither reads the answer nor ends its side is not waited
 * for.
 */
export function lingerAfterAnswer(stream: Http2Stream): void {
  stream.resume();
  const timer = setTimeout(() => stream.close(constants.NGHTTP2_CANCEL), LINGER_MS).unref();
  stream.once("close", () => clearTimeout(timer));
}

/**
 * Calls `charge` for each PING beyond the first in a turn of the event loop. A peer that waits for each answer sends
 * more only in a turn that reads over 64 KiB from it, because the answer may leave between two reads. grpc-go sends a
 * PING in each round trip while it receives: thousands a second if the other end is near. A single PING in a turn costs
 * no more than a byte of payload in a turn.
 */
export function onPipelinedPing(session: ServerHttp2Session, charge: () => void): void {
  let isFirst = true;
  session.on("ping", () => {
    if (!isFirst) {
      charge();
      return;
    }
    isFirst = false;
    setImmediate(() => {
      isFirst = true;
    });
  });
}

/** Code of an error that ends a session for a flood which we have counted, and not nghttp2. */
export const FLOOD = "CULVERT_HTTP2_FLOOD";
/** `NGHTTP2_ERR_FLOODED`, `NGHTTP2_ERR_TOO_MANY_CONTINUATIONS` and `NGHTTP2_ERR_TOO_MANY_SETTINGS`. */
const FLOODS = [-904, -905, -537];

/** The peer's violation, if this error of a session is its fault; a lost connection, and its GOAWAY, are none. */
export function violationOf({ code, errno }: NodeJS.ErrnoException): "flood" | "protocol" | undefined {
  if (code === FLOOD || code === "ERR_HTTP2_TOO_MANY_INVALID_FRAMES") return "flood";
  if (code !== "ERR_HTTP2_ERROR") return undefined;
  return FLOODS.includes(errno ?? 0) ? "flood" : "protocol";
}

/** Node takes a reset without an error code for the end of the stream; for a tunnel it is a failure. */
export function failOnReset(stream: Http2Stream, peer: "caller" | "server"): void {
  stream.once("aborted", () => {
    if (stream.rstCode === constants.NGHTTP2_NO_ERROR) stream.destroy(new Error(`the ${peer} reset the stream`));
  });
}

/**
 * Turns the strings that are written to an HTTP/2 stream into buffers. Node frees the strings of a gathered write
 * (`cork`) before they are sent, and sends what then is in that memory. `node:http` gathers its header with the body.
 */
export function writeStringsAsBuffers(stream: Duplex): void {
  const write = stream.write.bind(stream) as (chunk: unknown, ...others: unknown[]) => boolean;
  stream.write = (chunk: unknown, ...others: unknown[]): boolean => {
    if (typeof chunk !== "string") return write(chunk, ...others);
    const [encoding] = others;
    const hasEncoding = typeof encoding === "string";
    const bytes = Buffer.from(chunk, hasEncoding ? (encoding as BufferEncoding) : "utf8");
    return write(bytes, ...(hasEncoding ? others.slice(1) : others));
  };
}
