import type { Duplex } from "node:stream";
import type { TurnQueue } from "./turn-queue.ts";

/** A socket says so whose peer has gone, with the error if it was one, when it is not to be released yet: it closes later. */
export const PEER_GONE = Symbol("the peer has gone");

/** Nobody keeps a place for longer, ms: agents come back in that time, or not soon. */
const HELD_MS = 60_000;

/**
 * Connections whose peers have gone. A path that is cut takes thousands of them with it, and what Node does for the end of
 * each would be done for all of them in one turn; so each waits for its turn.
 *
 * Thousands that are released and come back cost more than their turns: Node tells V8 of 48 KB outside the heap for each TLS
 * connection, and V8 stops everybody to mark the heap for each 64 MB that come on top of the least that it has seen. So
 * there shall be no less for a while: in a rush, those whose owners listen for `PEER_GONE` keep their place until a newcomer
 * takes it (docs/decisions/0008).
 *
 * ```
 *  destroyed ─┬─ a few ──────────────────────────────────▶ released
 *             └─ many ─▶ its turn ─▶ PEER_GONE, held ─────▶ released: for a newcomer, or after 60 s
 *                            └ nobody listens ───────────▶ released
 * ```
 *
 * Meanwhile it is `destroyed` and has not closed, as is any stream whose `_destroy` takes its time. One that may still be
 * read is released at once: Node takes bytes that come for a destroyed socket for an error number, and throws where nobody
 * can catch it.
 */
export class Departures {
  readonly #turns: TurnQueue;
  /** In the order of their turns. */
  readonly #held = new Set<() => void>();
  /** Connections that are there, the held ones too; and how many there were when the first of those was held. */
  #present = 0;
  #places = 0;
  #timer: NodeJS.Timeout | undefined;
  #isOver = false;

  constructor(turns: TurnQueue) {
    this.#turns = turns;
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
    const release = socket._destroy;
    socket._destroy = (error, done) => {
      const now = (): void => release.call(socket, error, done);
      if (socket.readableEnded || isReadError(error)) this.#depart(socket, error, now);
      else now();
    };
  }

  /** Whoever is held is released, and nobody is held from now on. */
  end(): void {
    this.#isOver = true;
    this.#releaseAll();
  }

  #depart(socket: Duplex, error: Error | null, release: () => void): void {
    let isRush = false;
    this.#turns.run(() => {
      if (isRush && !this.#isOver && socket.emit(PEER_GONE, error ?? undefined)) this.#hold(release);
      else release();
    });
    isRush = true; // if it has not run yet
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

/** libuv reads no more after the first. */
function isReadError(error: NodeJS.ErrnoException | null): boolean {
  return error?.syscall === "read";
}
