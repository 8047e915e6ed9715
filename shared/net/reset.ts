import { readSync } from "node:fs";
import { Socket } from "node:net";
import type { Duplex } from "node:stream";

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
 */
export function endedByReset(socket: Duplex): boolean {
  const raw = rawSocketOf(socket);
  const fd = raw === undefined ? undefined : fileDescriptor(raw);
  if (fd === undefined) return false;
  try {
    readSync(fd, probe, 0, 1, null);
    return false;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code !== "EAGAIN";
  }
}

const probe = Buffer.alloc(1);

/** The socket that is the connection to the kernel: itself, or the one beneath a TLS socket. */
export function rawSocketOf(socket: Duplex): Socket | undefined {
  if (!(socket instanceof Socket)) return undefined;
  // Undocumented, but where each TLSSocket keeps what it was made on; without it, as for a TLSSocket that dialled by
  // itself, the connection is the TLSSocket's own.
  const parent = "_parent" in socket ? socket._parent : undefined;
  return parent instanceof Socket ? parent : socket;
}

function fileDescriptor(socket: Socket): number | undefined {
  const handle = "_handle" in socket ? socket._handle : undefined;
  const fd = typeof handle === "object" && handle !== null && "fd" in handle ? handle.fd : undefined;
  return typeof fd === "number" && fd >= 0 ? fd : undefined;
}
