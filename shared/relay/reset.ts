import type { Socket } from "node:net";
import type { Duplex } from "node:stream";
import { hasPeer, rawSocketOf, readAgain } from "../node/sockets.ts";

/**
 * Ends a connection so that its peer sees a failure, not an end in order: a TCP reset, under TLS without close_notify.
 * A unix socket knows no reset and is closed at once; any other Duplex is destroyed (design: "Outcomes").
 */
export function resetSocket(socket: Duplex, raw: Socket | undefined = rawSocketOf(socket)): void {
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
 * All is written and the end is on its way to the kernel. libuv refuses a reset then (`uv_tcp_close_reset`: EINVAL), and
 * what Node could not reset it never closes: the descriptor would stay for ever.
 */
function isEnding(socket: Duplex): boolean {
  return socket.writableEnded && !socket.writableFinished && socket.writableLength === 0;
}

/**
 * Was this socket, which has just said `end`, in truth reset by its peer?
 *
 * When a reset arrives together with the last bytes that a slow reader takes, libuv reports an end (`uv__stream_io`:
 * POLLHUP after a partial read), and half a file passes for a whole one. The kernel still has the error; reading once
 * more asks for it. After an end in order the same read returns 0.
 *
 * It does so as well when a write has taken the error before. Node tells nobody of a write that TLS makes by itself, for
 * its tickets, and no later write of that socket ever calls back. But a connection of which we have not closed our side
 * has a peer for as long as it stands.
 */
export function endedByReset(socket: Duplex): boolean {
  const raw = rawSocketOf(socket);
  const answer = raw && readAgain(raw);
  if (raw === undefined || answer === undefined || answer === "open") return false;
  return answer === "failed" || (!hasPeer(raw) && !socket.writableFinished);
}
