/** A pool that was used up is usable again below this share of its limit, so that it does not swing with every chunk. */
const LIFTED_BELOW = 0.9;

/**
 * What all tunnels of one process hold together, against `--memory-limit`: bytes that streams hold for slow readers, and
 * bytes that links keep until they are acknowledged. Above the limit nothing grows and nothing new begins, but what is
 * there goes on.
 *
 * Credit beyond initial windows is a promise to hold more, so it has to fit beside what is held. It does not refuse streams:
 * windows keep what they have grown to, and a process whose fast transfers are over is not full.
 *
 * Called for every chunk, hence additions only: nobody ever walks the tunnels to know.
 */
export class MemoryPool {
  readonly limit: number;
  readonly #liftedBelow: number;
  #held = 0;
  #reserved = 0;
  #refused = 0;
  #spent = false;

  constructor(limit: number) {
    this.limit = limit;
    this.#liftedBelow = limit * LIFTED_BELOW;
  }

  /** Bytes held now. */
  get held(): number {
    return this.#held;
  }

  /** Credit that windows have beyond their initial size. */
  get reserved(): number {
    return this.#reserved;
  }

  /** Streams that were refused because the pool was used up. */
  get refused(): number {
    return this.#refused;
  }

  /** From above the limit on, until less than 90 % of it is held. */
  get isSpent(): boolean {
    return this.#spent;
  }

  hold(delta: number): void {
    this.#held += delta;
    if (this.#held > this.limit) this.#spent = true;
    else if (this.#spent && this.#held < this.#liftedBelow) this.#spent = false;
  }

  /** Takes credit beyond an initial window, or says no. */
  reserve(bytes: number): boolean {
    if (this.#spent || this.#held + this.#reserved + bytes > this.limit) return false;
    this.#reserved += bytes;
    return true;
  }

  release(bytes: number): void {
    this.#reserved -= bytes;
  }

  onRefused(): void {
    this.#refused++;
  }

  /** What `/status` shows. */
  report(): Record<string, number | boolean> {
    return {
      limitBytes: this.limit,
      heldBytes: this.#held,
      reservedBytes: this.#reserved,
      refusing: this.#spent,
      refusedStreams: this.#refused,
    };
  }
}
