import type { Writable } from "node:stream";

/** A write of this size is worth a system call of its own … */
const FULL_WRITE = 48 * 1024;
/** … and this much is a part of something larger, which comes in the next turns: as many streams share the link. */
const PART = 16 * 1024;
/** So many turns more a part waits for the rest: bulk is later by less than a bystander notices. */
const MORE_TURNS = 2;

/** Sockets that are corked, and for how many turns they have waited. */
const gathering = new Map<Writable, number>();
let scheduled = false;

/**
 * One system call for what is written to `socket` from here to the end of this turn of the event loop, and where that is
 * only a part of a bulk transfer, of the next turns. Called before each write. Who ends the socket sends what waits.
 */
export function gatherWrites(socket: Writable): void {
  if (socket.writableCorked > 0) return;
  socket.cork();
  gathering.set(socket, 0);
  schedule();
}

function schedule(): void {
  if (scheduled) return;
  scheduled = true;
  setImmediate(onTurnEnd);
}

function onTurnEnd(): void {
  scheduled = false;
  for (const [socket, turns] of gathering) {
    const { writableLength } = socket;
    if (turns < MORE_TURNS && writableLength >= PART && writableLength < FULL_WRITE) {
      gathering.set(socket, turns + 1);
      schedule();
    } else {
      gathering.delete(socket);
      socket.uncork();
    }
  }
}
