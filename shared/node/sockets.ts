import { readSync } from "node:fs";
import { Socket } from "node:net";
import type { Duplex } from "node:stream";
import tls, { type SecureContext, type Server, type TLSSocket, type TlsOptions } from "node:tls";
import { isBun } from "./engine.ts";

// Undocumented behaviour of Node.js with sockets and TLS, and OpenSSL's format of a session. docs/node.md lists each
// behaviour, why it is used, and its test.

/** The socket of the kernel's connection: the one that a TLS socket was made on, or the socket itself. */
export function rawSocketOf(socket: Duplex): Socket | undefined {
  if (!(socket instanceof Socket)) return undefined;
  // `_parent` is where a TLSSocket keeps the socket that it was made on. A TLSSocket that dialled by itself has none.
  const parent = "_parent" in socket ? socket._parent : undefined;
  return parent instanceof Socket ? parent : socket;
}

/** The socket with the descriptor of the connection. On Bun a TLS socket takes it from the one that it was made on. */
export function descriptorOwner(socket: Duplex): Socket | undefined {
  const raw = rawSocketOf(socket);
  return isBun && raw?.destroyed ? (socket as Socket) : raw;
}

/**
 * The stream that a TLS socket was made on, if that is no socket of the kernel. `undefined` once the TLS socket has
 * released it. Bun keeps it in the TLS socket, under a symbol of its own.
 */
export function streamBeneath(socket: TLSSocket): Duplex | undefined {
  const { _handle } = socket as { _handle?: { readonly _parentWrap?: { readonly stream?: Duplex } } | null };
  const beneath = _handle?._parentWrap?.stream;
  if (beneath !== undefined || !isBun) return beneath;
  const upgraded = Object.getOwnPropertySymbols(socket).find(({ description }) => description === "kupgraded");
  return upgraded && (socket as unknown as Record<symbol, Duplex | undefined>)[upgraded];
}

/**
 * Reads once more from a socket that has reported its end, and returns the kernel's answer: `end`, `open` (nothing to
 * read now), or `failed`. `undefined`: the socket has no descriptor any more. A byte that is there is lost.
 */
export function readAgain(raw: Socket): "end" | "open" | "failed" | undefined {
  const handle = handleOf(raw);
  if (handle === undefined) return undefined;
  try {
    readSync(handle.fd, ONE_BYTE, 0, 1, null);
    return "end";
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === "EAGAIN" ? "open" : "failed";
  }
}

const ONE_BYTE = Buffer.alloc(1);

/** Whether a connection is open and, if it is TCP, the kernel still knows its other end. */
export function hasPeer(raw: Socket): boolean {
  return !raw.destroyed && (handleOf(raw)?.getpeername?.({}) ?? 0) === 0;
}

/**
 * Stops or continues reading from a socket below a TLS socket, which does not notice it. While nothing is read, a TLS
 * handshake makes no progress, and an end of the connection is not noticed.
 */
export function setReading(raw: Socket, reads: boolean): void {
  const handle = handleOf(raw);
  if (reads) handle?.readStart?.();
  else handle?.readStop?.();
}

/** Node's handle: the descriptor, and on TCP a question to the kernel that is answered by 0 or an error number. */
interface Handle {
  readonly fd: number;
  readStart?(): number;
  readStop?(): number;
  getpeername?(out: object): number;
}

function handleOf(socket: Socket): Handle | undefined {
  const handle = "_handle" in socket ? socket._handle : undefined;
  return isHandle(handle) && handle.fd >= 0 ? handle : undefined;
}

function isHandle(value: unknown): value is Handle {
  return typeof value === "object" && value !== null && "fd" in value && typeof value.fd === "number";
}

/**
 * From now on `onDestroy` decides when a destroyed stream is released: it closes once `release` has been called. Until
 * then it is `destroyed` and has not emitted `close`.
 */
export function deferRelease(stream: Duplex, onDestroy: (error: Error | null, release: () => void) => void): void {
  const destroy = stream._destroy;
  stream._destroy = (error, done) => onDestroy(error, () => destroy.call(stream, error, done));
}

/** A read from the kernel has failed: libuv reads no more from this socket. */
export function isReadError(error: NodeJS.ErrnoException | null): error is NodeJS.ErrnoException {
  return error?.syscall === "read";
}

/**
 * Makes a TLS server read whole TLS records, into buffers of 16 KiB. Without a listener of `resumeSession`, a
 * ClientHello given back by `unshift` makes one of Node's two buffers as small as 1 KiB, and every second read is of 1
 * KiB from then on (docs/decisions/0010); it has no effect on Node.js 26, nor on 24 from 24.22 on. The listener also
 * declines every session that a client resumes.
 */
export function readWholeRecords(server: Server): void {
  server.on("resumeSession", (_sessionId: Buffer, answer: (error: null, session: null) => void) => answer(null, null));
}

/** The options of a TLS server that are not options of its context. */
type OwnOptions = Pick<
  TlsOptions,
  "ALPNCallback" | "ALPNProtocols" | "handshakeTimeout" | "rejectUnauthorized" | "requestCert"
>;

/**
 * A TLS server with a context of its own. `tls.createServer` passes a fixed list of options to the context that it
 * makes, and `allowPartialTrustChain` is not in it; `SNICallback` and `addContext` see only clients that send a name.
 * Where Node.js would not use the context, the server has no certificate, and each handshake fails.
 */
export function tlsServerOn(context: SecureContext, options: OwnOptions): Server {
  // Without `ca`, Node.js 24 would read all public CAs for its own context.
  return Object.assign(tls.createServer({ ...options, ca: [] }), { _sharedCreds: context });
}

/**
 * Calls `look` when a client's handshake is done, before Node verifies the server's certificate and may destroy the
 * socket.
 */
export function beforeVerification(socket: TLSSocket, look: () => void): void {
  socket.prependOnceListener("secure", look);
}

/** Tags of DER in a session as OpenSSL writes it (i2d_SSL_SESSION(3)), which its documentation leaves open. */
const SEQUENCE = 0x30;
/** The field `peer`, with an explicit tag. */
const PEER = 0xa3;
/** The lengths of DER below 64 KiB (X.690 §8.1.3): in one byte, or behind a byte that says in how many. */
const SHORT = 0x80;
const IN_ONE = 0x81;
const IN_TWO = 0x82;

/**
 * The certificate (DER) that the peer of a TLS connection has shown, out of the session: `getPeerCertificate` makes
 * some thirty values for it, which takes ten times as long. `undefined`: none was shown, or the session cannot be read.
 */
export function shownCertificate(socket: TLSSocket): Buffer | undefined {
  const session = socket.getSession();
  const whole = session === undefined ? undefined : fieldAt(session, 0);
  if (session === undefined || whole?.tag !== SEQUENCE || whole.end !== session.length) return undefined;
  for (let field = fieldAt(session, whole.start); field !== undefined; field = fieldAt(session, field.end)) {
    if (field.tag === PEER) return session.subarray(field.start, field.end);
  }
  return undefined;
}

/** Tag, and where the content stands; `undefined` where no whole field does. */
function fieldAt(bytes: Buffer, at: number): { tag: number; start: number; end: number } | undefined {
  const [tag, first] = [bytes[at], bytes[at + 1]];
  if (tag === undefined || first === undefined) return undefined;
  const size = first < SHORT ? 0 : first === IN_ONE ? 1 : first === IN_TWO ? 2 : undefined;
  const start = at + 2 + (size ?? 0);
  if (size === undefined || start > bytes.length) return undefined;
  const end = start + (size === 0 ? first : bytes.readUIntBE(at + 2, size));
  return end > bytes.length ? undefined : { tag, start, end };
}
