/** So many bytes are acknowledged … */
const ACK_BYTES = 64 * 1024;
/** … unless the last acknowledgement is younger than this; and for as long again they wait for a write to go with. */
const ACK_GAP_MS = 5;
/** Fewer are acknowledged after this time. */
const ACK_WAIT_MS = 20;

/**
 * When to tell the peer how far we have received (design: "Link and resumption"). An acknowledgement of its own is a TLS
 * record, a system call and a wake-up of the peer, 0.2 ms of both ends together: so it goes with what is written anyway.
 *
 * ```
 *  said ──▶ young ── 5 ms ──▶ ripe ── 5 ms ──▶ old
 *           nothing is said   rides with a     64 KiB: at once
 *                             write            less: 20 ms after they came, or with a write
 * ```
 */
export class Acks {
  readonly #send: (received: number) => void;
  #received = 0;
  #acked = 0;
  #held = false;
  /** How old the last acknowledgement is. */
  #age: "young" | "ripe" | "old" = "old";
  #ageTimer: NodeJS.Timeout | undefined;
  #waitTimer: NodeJS.Timeout | undefined;

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
    if (due >= ACK_BYTES && this.#age === "old") this.now();
  }

  /** Something is about to be written. */
  ride(): void {
    if (this.#age !== "young" && this.#received > this.#acked) this.now();
  }

  /** Says how far we are, also when nothing has arrived: a new carrier waits for a first word. */
  now(): void {
    if (this.#held) return;
    this.#acked = this.#received;
    this.#age = "young";
    clearTimeout(this.#waitTimer);
    this.#waitTimer = undefined;
    clearTimeout(this.#ageTimer);
    this.#growOlder();
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
    clearTimeout(this.#ageTimer);
    clearTimeout(this.#waitTimer);
  }

  #wait(): void {
    this.#waitTimer ??= setTimeout(this.#onWaited, ACK_WAIT_MS).unref();
  }

  #growOlder(): void {
    this.#ageTimer = setTimeout(this.#onOlder, ACK_GAP_MS).unref();
  }

  readonly #onOlder = (): void => {
    if (this.#age === "young") {
      this.#age = "ripe";
      this.#growOlder();
      return;
    }
    this.#age = "old";
    if (this.#received - this.#acked >= ACK_BYTES) this.now();
  };

  readonly #onWaited = (): void => {
    this.#waitTimer = undefined;
    if (this.#received > this.#acked) this.now();
  };
}
