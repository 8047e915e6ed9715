/** So many bytes are acknowledged at once, fewer go with a write … */
const ACK_BYTES = 64 * 1024;
/** … unless the last acknowledgement is younger than this … */
const ACK_GAP_MS = 5;
/** … and so few, which are nobody's bulk, when they have waited nearly as long as they may. */
const FEW_BYTES = 4 * 1024;
const FEW_WAIT_MS = 15;
/** Less than 64 KiB without a write to go with is acknowledged after this time. */
const ACK_WAIT_MS = 20;

/**
 * When to tell the peer how far we have received (design: "Link and resumption"). An acknowledgement of its own is a TLS
 * record, a system call and a wake-up of the peer, 0.2 ms of both ends together: so it goes with what is written anyway.
 *
 * ```
 *                        since the last ack     since the first byte
 *  64 KiB or more        5 ms: at once
 *   4 KiB or more        5 ms: with a write     20 ms: alone
 *  fewer                 5 ms, and …            15 ms: with a write; 20 ms: alone
 * ```
 */
export class Acks {
  readonly #send: (received: number) => void;
  readonly #clock: () => number;
  #received = 0;
  #acked = 0;
  #held = false;
  /** When the last acknowledgement was said. */
  #saidAt = Number.NEGATIVE_INFINITY;
  /** When the first byte came that it does not cover, or a hold ended. */
  #dueSince = 0;
  /** 64 KiB are due, and the last acknowledgement is too young. */
  #gapTimer: NodeJS.Timeout | undefined;
  #waitTimer: NodeJS.Timeout | undefined;

  constructor(send: (received: number) => void, clock: () => number = () => performance.now()) {
    this.#send = send;
    this.#clock = clock;
  }

  /** All payload before this offset has arrived. */
  get received(): number {
    return this.#received;
  }

  arrived(bytes: number): void {
    this.#received += bytes;
    const due = this.#received - this.#acked;
    if (due === bytes) this.#begin();
    if (due >= ACK_BYTES && this.#gapTimer === undefined) this.#hurry();
  }

  /** Something is about to be written. */
  ride(): void {
    const due = this.#received - this.#acked;
    if (due === 0) return;
    const now = this.#clock();
    if (now - this.#saidAt < ACK_GAP_MS) return;
    if (due >= FEW_BYTES || now - this.#dueSince >= FEW_WAIT_MS) this.now();
  }

  /** Says how far we are, also when nothing has arrived: a new carrier waits for a first word. */
  now(): void {
    if (this.#held) return;
    this.#acked = this.#received;
    this.#saidAt = this.#clock();
    this.#stopTimers();
    this.#send(this.#received);
  }

  /** Nothing is said until `release`: an offset that was named elsewhere is to stay the highest the peer knows of. */
  hold(): void {
    this.#held = true;
  }

  release(): void {
    this.#held = false;
    if (this.#received > this.#acked) this.#begin();
  }

  stop(): void {
    this.#held = true;
    this.#stopTimers();
  }

  #stopTimers(): void {
    clearTimeout(this.#gapTimer);
    this.#gapTimer = undefined;
    clearTimeout(this.#waitTimer);
    this.#waitTimer = undefined;
  }

  #begin(): void {
    this.#dueSince = this.#clock();
    this.#waitTimer ??= setTimeout(this.#onWaited, ACK_WAIT_MS).unref();
  }

  readonly #onWaited = (): void => {
    this.#waitTimer = undefined;
    this.now();
  };

  #hurry(): void {
    const leftMs = Math.ceil(this.#saidAt + ACK_GAP_MS - this.#clock());
    if (leftMs > 0) this.#gapTimer = setTimeout(this.#onGap, leftMs).unref();
    else this.now();
  }

  readonly #onGap = (): void => {
    this.#gapTimer = undefined;
    this.now();
  };
}
