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
 *
 * It does so as well when a write has taken the error before. Node tells nobody of a write that TLS makes by itself, for
 * its tickets, and no later write of that socket ever calls back. But a connection of which we have not closed our side
 * has a peer for as long as it stands.
 */
export function endedByReset(socket: Duplex): boolean {
  const raw = rawSocketOf(socket);
  const handle = raw && handleOf(raw);
  if (handle === undefined) return false;
  try {
    readSync(handle.fd, probe, 0, 1, null);
  } catch (error) {
    return (error as NodeJS.ErrnoException).code !== "EAGAIN";
  }
  const hasPeer = (handle.getpeername?.({}) ?? 0) === 0;
  return !hasPeer && !socket.writableFinished;
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

/** What Node does not document: the descriptor, and on TCP a question to the kernel, answered by an error number or 0. */
interface Handle {
  readonly fd: number;
  getpeername?(out: object): number;
}

function handleOf(socket: Socket): Handle | undefined {
  const handle = "_handle" in socket ? socket._handle : undefined;
  return isHandle(handle) && handle.fd >= 0 ? handle : undefined;
}

function isHandle(value: unknown): value is Handle {
  return typeof value === "object" && value !== null && "fd" in value && typeof value.fd === "number";
}
