import type { Duplex } from "node:stream";
import type { TurnQueue } from "../basics/timers.ts";
import { deferRelease, isReadError } from "../node/sockets.ts";

/** The event, with the error, of a socket whose connection is lost. `close` follows when the socket is released. */
export const PEER_GONE = Symbol("the peer has gone");

/** Maximum time that a lost connection is held, ms: agents return within this time or much later. */
const HELD_MS = 60_000;
/** Minimum number of connections for holding. The external memory of fewer does not make V8 mark the heap. */
const MANY = 1_000;

/**
 * Spreads the release of connections that are lost together. A network path that fails ends thousands of them, and Node
 * would release all of them in one turn of the event loop; so each waits for its turn.
 *
 * Node reports 48 KB of external memory to V8 for each TLS connection. V8 stops the process to mark the heap for each
 * 64 MB above the lowest sum that it has seen. Thousands of connections that are released and come back cause several
 * such stops. Therefore, with `many` connections, a lost one whose owner listens for `PEER_GONE` is held, and each new
 * connection releases one, which keeps the sum level (docs/decisions/0008).
 *
 * ```
 *  destroyed ─┬─ more may be read ───────────▶ released at once
 *             └─ ended or lost ─▶ its turn ─┬─▶ released
 *                                           └─ one of many lost: PEER_GONE, held ─▶ released: for a new one, or after
 *                                           60 s
 * ```
 *
 * Until its release a connection is `destroyed` and has not emitted `close`. If bytes arrive then, Node takes their
 * number for an error number, and throws where nothing can catch it: so a connection from which more may be read is
 * released at once. A connection that has ended waits for its turn, but is not held: perhaps only TLS has ended, and
 * the peer still sends below it.
 */
export class PacedClose {
  readonly #turns: TurnQueue;
  readonly #many: number;
  /** Releases of held connections, in the order of their turns. */
  readonly #held = new Set<() => void>();
  /** The number of connections, held ones included. */
  #present = 0;
  /** The number of connections when the first of the held ones was lost. */
  #places = 0;
  #timer: NodeJS.Timeout | undefined;
  #isOver = false;

  /** Lost connections are held while there are at least `many` connections. */
  constructor(turns: TurnQueue, many = MANY) {
    this.#turns = turns;
    this.#many = many;
  }

  /** The number of held connections. */
  get held(): number {
    return this.#held.size;
  }

  /** Counts a connection that begins its handshake, until it closes. May release a held one. */
  arrived(raw: Duplex): void {
    this.#present++;
    raw.once("close", () => {
      this.#present--;
    });
    if (this.#present > this.#places) this.#releaseOne();
  }

  /** Applies the rules of this class to a socket. */
  watch(socket: Duplex): void {
    deferRelease(socket, (error, release) => {
      if (isReadError(error)) this.#turns.run(() => this.#lost(socket, error, release));
      else if (socket.readableEnded) this.#turns.run(release);
      else release();
    });
  }

  /** Releases all held connections, and holds none from now on. */
  end(): void {
    this.#isOver = true;
    this.#releaseAll();
  }

  #lost(socket: Duplex, error: Error, release: () => void): void {
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
