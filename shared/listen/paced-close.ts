import type { Duplex } from "node:stream";
import type { TurnQueue } from "../basics/turn-queue.ts";
import { deferRelease, isReadError } from "../node/sockets.ts";

/** A socket says so, with the error, that was cut and is not to be released yet: it closes later. */
export const PEER_GONE = Symbol("the peer has gone");

/** Nobody keeps a place for longer, ms: agents come back in that time, or not soon. */
const HELD_MS = 60_000;
/** Where fewer are there, what V8 is told of them makes it mark nothing. */
const MANY = 1_000;

/**
 * Connections whose peers have gone. A path that is cut takes thousands of them with it, and what Node does for the end of
 * each would be done for all of them in one turn; so each waits for its turn.
 *
 * Thousands that are released and come back cost more than their turns: Node tells V8 of 48 KB outside the heap for each TLS
 * connection, and V8 stops everybody to mark the heap for each 64 MB that come on top of the least that it has seen. So
 * there shall be no less for a while: where there are many, those that were cut and whose owners listen for `PEER_GONE` keep
 * their place until a newcomer takes it (docs/decisions/0008).
 *
 * ```
 *  destroyed ─┬─ may be read ────────────────▶ released at once
 *             └─ ended, or cut ─▶ its turn ─┬─▶ released
 *                                           └─ cut, one of many: PEER_GONE, held ─▶ released: for a newcomer, or after 60 s
 * ```
 *
 * Meanwhile it is `destroyed` and has not closed, as is any stream whose `_destroy` takes its time. Bytes that come then Node
 * takes for an error number, and throws where nobody can catch it: so one that may be read does not wait at all. And one that
 * has ended is not held: that may have been TLS, and beneath it the peer may send for as long as it likes.
 */
export class PacedClose {
  readonly #turns: TurnQueue;
  readonly #many: number;
  /** In the order of their turns. */
  readonly #held = new Set<() => void>();
  /** Connections that are there, the held ones too. */
  #present = 0;
  /** How many there were when the first of those was held. */
  #places = 0;
  #timer: NodeJS.Timeout | undefined;
  #isOver = false;

  /** `many`: with so many connections places are kept. */
  constructor(turns: TurnQueue, many = MANY) {
    this.#turns = turns;
    this.#many = many;
  }

  /** Those that have gone and keep a place. */
  get held(): number {
    return this.#held.size;
  }

  /** A newcomer is about to begin; it is there until it closes. */
  arrived(raw: Duplex): void {
    this.#present++;
    raw.once("close", () => {
      this.#present--;
    });
    if (this.#present > this.#places) this.#releaseOne();
  }

  /** From now on this socket goes by these rules. */
  watch(socket: Duplex): void {
    deferRelease(socket, (error, release) => {
      if (isReadError(error)) this.#turns.run(() => this.#cut(socket, error, release));
      else if (socket.readableEnded) this.#turns.run(release);
      else release();
    });
  }

  /** Whoever is held is released, and nobody is held from now on. */
  end(): void {
    this.#isOver = true;
    this.#releaseAll();
  }

  #cut(socket: Duplex, error: Error, release: () => void): void {
    const isHeld = !this.#isOver && this.#present >= this.#many && socket.emit(PEER_GONE, error);
    if (isHeld) this.#hold(release);
    else release();
  }

  #hold(release: () => void): void {
    if (this.#held.size === 0) {
      this.#places = this.#present;
      this.#timer = setTimeout(() => this.#releaseAll(), HELD_MS).unref();
    }
    this.#held.add(release);
  }

  #releaseOne(): void {
    const [release] = this.#held;
    if (release === undefined) return;
    this.#held.delete(release);
    if (this.#held.size === 0) clearTimeout(this.#timer);
    release();
  }

  #releaseAll(): void {
    clearTimeout(this.#timer);
    for (const release of this.#held) this.#turns.run(release);
    this.#held.clear();
  }
}
