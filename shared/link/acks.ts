/** So many bytes are acknowledged at once, fewer with the next write. */
const ACK_BYTES = 64 * 1024;
/** Acknowledgements are at least so far apart: each is a TLS record, a system call and a wake-up of the peer. */
const ACK_GAP_MS = 5;
/** Without a write to go with, fewer bytes are acknowledged after this time. */
const ACK_WAIT_MS = 10;

/**
 * Decides when to acknowledge what a link has received (docs/link-protocol.md). Acknowledgements go with what is
 * written anyway, if they can.
 */
export class Acks {
  readonly #send: (received: number) => void;
  readonly #clock: () => number;
  #received = 0;
  #acked = 0;
  #held = false;
  #sentAt = Number.NEGATIVE_INFINITY;
  /** 64 KiB wait until the last acknowledgement is 5 ms old. */
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
    this.#waitTimer ??= setTimeout(this.#onWaited, ACK_WAIT_MS).unref();
    if (this.#received - this.#acked >= ACK_BYTES && this.#gapTimer === undefined) this.#hurry();
  }

  /** Something is about to be written, with which an acknowledgement can go. */
  ride(): void {
    if (this.#received > this.#acked && this.#clock() - this.#sentAt >= ACK_GAP_MS) this.now();
  }

  /** Acknowledges now, even if nothing has arrived: the peer waits for a first message on a new carrier. */
  now(): void {
    if (this.#held) return;
    this.#acked = this.#received;
    this.#sentAt = this.#clock();
    this.#stopTimers();
    this.#send(this.#received);
  }

  /** Acknowledges nothing until `release`, because a hello or its answer has named an offset as the highest. */
  hold(): void {
    this.#held = true;
  }

  release(): void {
    this.#held = false;
    if (this.#received > this.#acked) this.#waitTimer ??= setTimeout(this.#onWaited, ACK_WAIT_MS).unref();
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

  readonly #onWaited = (): void => {
    this.#waitTimer = undefined;
    this.now();
  };

  #hurry(): void {
    const leftMs = Math.ceil(this.#sentAt + ACK_GAP_MS - this.#clock());
    if (leftMs > 0) this.#gapTimer = setTimeout(this.#onGap, leftMs).unref();
    else this.now();
  }

  readonly #onGap = (): void => {
    this.#gapTimer = undefined;
    this.now();
  };
}
