import type { Writable } from "node:stream";

/** Up to here is what somebody types, or waits for. */
const WORD = 4 * 1024;
/** A write of this size is worth a system call of its own … */
const FULL_WRITE = 48 * 1024;
/** … and this much is likely a part of something larger, of which the next turns bring more: many streams share the link. */
const PART = 16 * 1024;
/** So many turns more a part waits for the rest … */
const MORE_TURNS = 2;
/** … but no longer than this, ms: it may be all there is, and on a busy loop a turn is long. */
const MOST_WAIT_MS = 2;

/** Sockets that this turn has written to, or an earlier one that waits for what this one brings. */
let gathered: GatheredWrites[] = [];

/**
 * Few system calls for what is written to a socket: the first word of a turn of the event loop goes at once, all else at
 * the turn's end, and where that is only a part of a bulk transfer, with what the next turns bring
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

  /** As `Writable.write`. */
  write(chunk: Buffer, done?: () => void): boolean {
    if (this.#begun || chunk.length >= WORD) this.#cork();
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
    if (this.#isWorthWaiting()) {
      this.#turns++;
      this.#waitForTurnEnd();
      return;
    }
    this.#begun = false;
    this.#turns = 0;
    if (this.#socket.writableCorked > 0) this.#socket.uncork();
  }

  #isWorthWaiting(): boolean {
    const { writableLength, writableCorked } = this.#socket;
    return (
      writableCorked > 0 &&
      writableLength >= PART &&
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
