import type { Writable } from "node:stream";

/** A shorter write may be what somebody types or waits for. */
const SHORT_WRITE = 4 * 1024;
/** A write of this size is worth a system call of its own. */
const FULL_WRITE = 48 * 1024;
/** This much is likely a part of a bulk transfer, and the next turns bring more of it: many streams share the link. */
const BULK_PART = 16 * 1024;
/** So many turns more a part waits for the rest, and so long, ms, at most: on a busy loop a turn is long. */
const MORE_TURNS = 2;
const MOST_WAIT_MS = 2;

/** Sockets that were written to in this turn, or that wait from an earlier one. */
let gathered: GatheredWrites[] = [];

/**
 * Gathers what is written to a socket into few system calls: the first short write of a turn of the event loop goes at
 * once, all else at the end of the turn, and a part of a bulk transfer with what the next turns bring
 * (docs/decisions/0016). An end sends what waits; a socket that is destroyed loses it.
 */
export class GatheredWrites {
  readonly #socket: Writable;
  /** Something was written in this turn, or waits from an earlier one. */
  #begun = false;
  #corkedAtMs = 0;
  #turns = 0;

  constructor(socket: Writable) {
    this.#socket = socket;
  }

  /** Like `Writable.write`. */
  write(chunk: Buffer, done?: () => void): boolean {
    if (this.#begun || chunk.length >= SHORT_WRITE) this.#cork();
    if (!this.#begun) this.#waitForTurnEnd();
    return this.#socket.write(chunk, done);
  }

  #cork(): void {
    if (this.#socket.writableCorked > 0) return;
    this.#socket.cork();
    this.#corkedAtMs = performance.now();
  }

  #waitForTurnEnd(): void {
    this.#begun = true;
    if (gathered.push(this) === 1) setImmediate(onTurnEnd);
  }

  /** Called once in a turn. */
  endTurn(): void {
    if (this.#isBulkPart()) {
      this.#turns++;
      this.#waitForTurnEnd();
      return;
    }
    this.#begun = false;
    this.#turns = 0;
    if (this.#socket.writableCorked > 0) this.#socket.uncork();
  }

  #isBulkPart(): boolean {
    const { writableLength, writableCorked } = this.#socket;
    return (
      writableCorked > 0 &&
      writableLength >= BULK_PART &&
      writableLength < FULL_WRITE &&
      this.#turns < MORE_TURNS &&
      performance.now() - this.#corkedAtMs < MOST_WAIT_MS
    );
  }
}

function onTurnEnd(): void {
  const due = gathered;
  gathered = [];
  for (const each of due) each.endTurn();
}
