/** So many bytes are acknowledged … */
const ACK_BYTES = 64 * 1024;
/** … unless the last acknowledgement is younger than this: one costs both ends together 0.3 ms of their time. */
const ACK_GAP_MS = 10;
/** Fewer are acknowledged after this time. */
const ACK_WAIT_MS = 20;

/** When to tell the peer how far we have received (design: "Link and resumption"). */
export class Acks {
  readonly #send: (received: number) => void;
  #received = 0;
  #acked = 0;
  #lastAt = 0;
  #held = false;
  #timer: NodeJS.Timeout | undefined;
  #gapTimer: NodeJS.Timeout | undefined;

  constructor(send: (received: number) => void) {
    this.#send = send;
  }

  /** All payload before this offset has arrived. */
  get received(): number {
    return this.#received;
  }

  arrived(bytes: number): void {
    this.#received += bytes;
    const due = this.#received - this.#acked;
    if (due === bytes) this.#wait();
    if (due < ACK_BYTES) return;
    if (performance.now() - this.#lastAt >= ACK_GAP_MS) this.now();
    else this.#gapTimer ??= setTimeout(this.#onGapOver, ACK_GAP_MS).unref();
  }

  /** Says how far we are, also when nothing has arrived: a new carrier waits for a first word. */
  now(): void {
    if (this.#held) return;
    this.#acked = this.#received;
    this.#lastAt = performance.now();
    this.#send(this.#received);
  }

  /** Nothing is said until `release`: an offset that was named elsewhere is to stay the highest the peer knows of. */
  hold(): void {
    this.#held = true;
  }

  release(): void {
    this.#held = false;
    if (this.#received > this.#acked) this.#wait();
  }

  stop(): void {
    this.#held = true;
    clearTimeout(this.#timer);
    clearTimeout(this.#gapTimer);
  }

  #wait(): void {
    this.#timer ??= setTimeout(this.#onWaited, ACK_WAIT_MS).unref();
  }

  /** A sender that is held back by what it has under way waits for this word: it must not take the whole 20 ms. */
  readonly #onGapOver = (): void => {
    this.#gapTimer = undefined;
    if (this.#received - this.#acked >= ACK_BYTES) this.now();
  };

  readonly #onWaited = (): void => {
    this.#timer = undefined;
    if (this.#received > this.#acked) this.now();
  };
}
