import type { Duplex } from "node:stream";
import type { TurnQueue } from "../basics/timers.ts";
import { deferRelease, isReadError } from "../node/sockets.ts";

/** The event, with the error, of a socket whose connection is lost, before it is released: `close` comes later. */
export const PEER_GONE = Symbol("the peer has gone");

/** Maximum time that a lost connection is held, ms: agents come back in that time, or not soon. */
const HELD_MS = 60_000;
/** With fewer connections, what V8 is told of them does not make it mark the heap. */
const MANY = 1_000;

/**
 * Spreads the release of connections that are lost together. A network path that fails ends thousands of them, and Node
 * would release all of them in one turn of the event loop; so each waits for its turn.
 *
 * Node tells V8 of 48 KB outside the heap for each TLS connection, and V8 stops the process to mark the heap for each
 * 64 MB above the least that it has seen. Thousands that are released and come back cause several such stops. So where
 * there are many, lost connections whose owners listen for `PEER_GONE` are held, and each new connection releases one
 * of them, which keeps the sum level (docs/decisions/0008).
 *
 * ```
 *  destroyed ─┬─ more may be read ───────────▶ released at once
 *             └─ ended or lost ─▶ its turn ─┬─▶ released
 *                                           └─ one of many lost: PEER_GONE, held ─▶ released: for a new one, or after
 *                                           60 s
 * ```
 *
 * Until its release a connection is `destroyed` and has not emitted `close`. Node takes bytes that arrive then for an
 * error number, and throws where nothing can catch it: so a connection from which more may be read does not wait. One
 * that has ended is not held: only TLS may have ended, and the peer may go on sending beneath it.
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

  /** `many`: with so many connections lost ones are held. */
  constructor(turns: TurnQueue, many = MANY) {
    this.#turns = turns;
    this.#many = many;
  }

  /** The number of held connections. */
  get held(): number {
    return this.#held.size;
  }

  /** A new connection begins its handshake. It counts until it closes. */
  arrived(raw: Duplex): void {
    this.#present++;
    raw.once("close", () => {
      this.#present--;
    });
    if (this.#present > this.#places) this.#releaseOne();
  }

  /** Applies these rules to the socket. */
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
