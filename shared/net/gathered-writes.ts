import type { Writable } from "node:stream";

/** A write of this size is worth a system call of its own … */
const FULL_WRITE = 48 * 1024;
/** … and this much is likely a part of something larger, of which the next turns bring more: many streams share the link. */
const PART = 16 * 1024;
/** So many turns more a part waits for the rest … */
const MORE_TURNS = 2;
/** … but no longer than this, ms: it may be all there is, and on a busy loop a turn is long. */
const MOST_WAIT_MS = 2;

/** So many bytes go at once when nothing was written before them for so long, ms: what somebody types, or waits for. */
const WORD = 4 * 1024;
const QUIET_MS = 1;

interface Gathered {
  readonly socket: Writable;
  readonly sinceMs: number;
  turns: number;
}

/** Sockets that this turn has corked, or an earlier one for the sake of what this one brings. */
let gathered: Gathered[] = [];

/**
 * One system call for what is written to a socket from here to the end of this turn of the event loop, and where that is
 * only a part of a bulk transfer, of the next turns (docs/decisions/0016). An end sends what waits; a socket that is
 * destroyed loses it.
 */
export class GatheredWrites {
  readonly #socket: Writable;
  #writtenAt = Number.NEGATIVE_INFINITY;

  constructor(socket: Writable) {
    this.#socket = socket;
  }

  /** As `Writable.write`. */
  write(chunk: Buffer): boolean {
    if (this.#socket.writableCorked === 0) this.#begin(chunk.length);
    return this.#socket.write(chunk);
  }

  /** A word that comes alone has nothing to wait for; if others follow, they gather. */
  #begin(bytes: number): void {
    const now = performance.now();
    const isAlone = bytes < WORD && now - this.#writtenAt >= QUIET_MS;
    this.#writtenAt = now;
    if (isAlone) return;
    this.#socket.cork();
    wait({ socket: this.#socket, sinceMs: now, turns: 0 });
  }
}

function wait(each: Gathered): void {
  if (gathered.push(each) === 1) setImmediate(onTurnEnd);
}

function onTurnEnd(): void {
  const due = gathered;
  gathered = [];
  const now = performance.now();
  for (const each of due) {
    if (isWorthWaiting(each, now)) {
      each.turns++;
      wait(each);
    } else {
      each.socket.uncork();
    }
  }
}

function isWorthWaiting({ socket, sinceMs, turns }: Gathered, now: number): boolean {
  const { writableLength, writableCorked } = socket;
  return (
    writableCorked > 0 &&
    writableLength >= PART &&
    writableLength < FULL_WRITE &&
    turns < MORE_TURNS &&
    now - sinceMs < MOST_WAIT_MS
  );
}
