import type { Socket } from "node:net";
import { endedByReset } from "../../shared/relay/reset.ts";

/**
 * How the peer ends a connection: `fin`, an error's code such as `ECONNRESET`, or `closed` when it is we who did.
 * A reset that Node tells as an end (see `endedByReset`) is a reset here. Reading is left to others.
 */
export function peerEnd(socket: Socket): Promise<string> {
  return new Promise((resolve) => {
    socket.on("error", (error: NodeJS.ErrnoException) => resolve(error.code ?? error.message));
    socket.on("end", () => resolve(endedByReset(socket) ? "ECONNRESET" : "fin"));
    socket.on("close", () => resolve("closed"));
  });
}
