/** What was under way when its stream ended has arrived by then, ms, also over a link that was suspended meanwhile. */
const ARRIVED_MS = 60_000;

/**
 * Payload that a peer may still send for streams that have ended here: what their windows allowed at that moment, since
 * it may have been under way. More than that obeys no window, and could be sent without end.
 */
export class LateData {
  readonly #now: () => number;
  #since: number;
  /** Of streams that have ended since then, and of those that ended in the time before. */
  #allowed = 0;
  #allowedBefore = 0;

  constructor(now: () => number) {
    this.#now = now;
    this.#since = now();
  }

  /** A stream has ended here, on which so many bytes were still allowed. */
  allow(bytes: number): void {
    this.#forget();
    this.#allowed += bytes;
  }

  /** False: the peer had no right to send them. */
  take(bytes: number): boolean {
    this.#forget();
    const left = this.#allowedBefore - bytes;
    this.#allowedBefore = Math.max(0, left);
    if (left < 0) this.#allowed += left;
    return this.#allowed >= 0;
  }

  #forget(): void {
    const now = this.#now();
    const passedMs = now - this.#since;
    if (passedMs < ARRIVED_MS) return;
    this.#allowedBefore = passedMs < 2 * ARRIVED_MS ? this.#allowed : 0;
    this.#allowed = 0;
    this.#since = now;
  }
}
