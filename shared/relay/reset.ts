import type { Duplex } from "node:stream";
import { descriptorOwner, hasPeer, readAgain } from "../node/sockets.ts";

/**
 * Ends a connection so that its peer sees a failure and not a clean end: by a TCP reset, under TLS without
 * close_notify. A unix socket has no reset and is closed at once; any other Duplex is destroyed.
 */
export function resetSocket(socket: Duplex): void {
  const raw = descriptorOwner(socket);
  if (raw !== undefined && !raw.destroyed && !raw.connecting && !isEnding(socket)) {
    try {
      raw.resetAndDestroy();
    } catch {
      raw.destroy(); // not TCP
    }
  }
  socket.destroy();
}

/**
 * Everything is written and the end is on its way to the kernel. libuv then refuses a reset (`uv_tcp_close_reset`:
 * EINVAL), and Node never closes a socket that it could not reset: the descriptor would stay open for ever.
 */
function isEnding(socket: Duplex): boolean {
  return socket.writableEnded && !socket.writableFinished && socket.writableLength === 0;
}

/** Of HTTP/2 (RFC 9113 §7); a stream that was not reset has it as well. */
const NO_ERROR = 0;

/**
 * Was this socket, which has just emitted `end`, reset by its peer?
 *
 * When a reset arrives together with the last bytes that a slow reader takes, libuv reports an end (`uv__stream_io`:
 * POLLHUP after a partial read), and half a file looks like a whole one. The kernel still has the error, and another
 * read returns it. After a clean end that read returns 0.
 *
 * It also returns 0 if a write has consumed the error before. Node does not report writes that TLS makes by itself,
 * for its tickets, and no later write of that socket ever calls back. But a connection whose own side is not closed
 * has a peer as long as it is established, so the kernel is asked for that. Bun may have closed the descriptor already.
 */
export function endedByReset(socket: Duplex): boolean {
  // Node makes an end of an HTTP/2 stream that its peer has reset, too.
  if ("rstCode" in socket && socket.rstCode !== NO_ERROR) return true;
  const raw = descriptorOwner(socket);
  const answer = raw && readAgain(raw);
  if (raw === undefined || answer === "open") return false;
  return answer === "failed" || (!hasPeer(raw) && !socket.writableFinished);
}
