import type { Duplex } from "node:stream";
import type { LinkRefused } from "../../shared/wire/handshake.ts";

/** What was said last may still arrive before the cut, ms. */
const LAST_WORDS_MS = 200;

/**
 * What a carrier has until it must be known whose it is: one deadline for all steps, and a cut right behind it. Whoever is
 * refused may not linger for longer either, since nobody knows who it is. What others take to judge a token is apart.
 */
export class HandshakeTime {
  readonly #socket: Duplex;
  /** Why it was ended before its time. */
  dropped: LinkRefused | undefined;
  #leave: () => void = nothing;
  #until: number;
  #timer: NodeJS.Timeout | undefined;
  #isOver = false;

  constructor(socket: Duplex, ms: number) {
    this.#socket = socket;
    this.#until = performance.now() + ms;
    if (socket.closed) {
      this.over();
      return;
    }
    socket.once("close", this.#onClose);
    this.#start();
  }

  readonly #onClose = (): void => this.over();

  get leftMs(): number {
    return Math.max(1, this.#until - performance.now());
  }

  /**
   * It has a place among those that nobody knows, and none it had before. `leave` gives the place back: when it has
   * another one, is known, or is really gone.
   */
  occupy(leave: () => void): void {
    this.vacate();
    this.#leave = leave;
    if (this.#isOver) this.vacate();
  }

  /** Gives its place back. */
  vacate(): void {
    const leave = this.#leave;
    this.#leave = nothing;
    leave();
  }

  /** It stands still meanwhile. */
  async apart<T>(judge: () => Promise<T>): Promise<T> {
    const { leftMs } = this;
    clearTimeout(this.#timer);
    try {
      return await judge();
    } finally {
      this.#until = performance.now() + leftMs;
      if (!this.#isOver) this.#start();
    }
  }

  #start(): void {
    this.#timer = setTimeout(this.#cut, this.leftMs + LAST_WORDS_MS);
  }

  readonly #cut = (): void => {
    if (this.#socket.destroyed)
      this.over(); // gone already, and not closed: nobody is there any more
    else this.#socket.destroy();
  };

  over(): void {
    if (this.#isOver) return;
    this.#isOver = true;
    clearTimeout(this.#timer);
    this.#socket.off("close", this.#onClose);
    this.vacate();
  }
}

function nothing(): void {}
