import type { Duplex } from "node:stream";
import type { TurnQueue } from "./turn-queue.ts";

/**
 * From now on this socket waits for its turn when it is destroyed because its peer has gone. A path that is cut takes
 * thousands of TLS connections with it, and what Node does for the end of each would be done for all of them in one turn.
 * Until then it is `destroyed` and has not closed, as is any stream whose `_destroy` takes its time.
 *
 * One that may still be read is released at once: Node takes bytes that come for a destroyed socket for an error number,
 * and throws where nobody can catch it.
 */
export function releaseInTurn(socket: Duplex, turns: TurnQueue): void {
  const release = socket._destroy;
  socket._destroy = (error, done) => {
    const now = (): void => release.call(socket, error, done);
    if (socket.readableEnded || isReadError(error)) turns.run(now);
    else now();
  };
}

/** libuv reads no more after the first. */
function isReadError(error: NodeJS.ErrnoException | null): boolean {
  return error?.syscall === "read";
}
