import type { Duplex } from "node:stream";
import type { TurnQueue } from "./turn-queue.ts";

/**
 * From now on this socket waits for its turn when it is destroyed. A path that is cut takes thousands of TLS connections
 * with it, and what Node does for the end of each would be done for all of them in one turn. Until then it is `destroyed`
 * and has not closed, as is any stream whose `_destroy` takes its time.
 */
export function releaseInTurn(socket: Duplex, turns: TurnQueue): void {
  const release = socket._destroy;
  socket._destroy = (error, done) => turns.run(() => release.call(socket, error, done));
}
