import { YamuxError } from "./errors.ts";
import type { SessionOptions } from "./options.ts";

/** Limits the frames a second that carry nothing: they cost us more than the peer that sends them. */
export class IdleFrameLimit {
  readonly #perSecond: number;
  readonly #now: () => number;
  #second = 0;
  #count = 0;

  constructor({ maxIdleFramesPerSecond, now }: Pick<SessionOptions, "maxIdleFramesPerSecond" | "now">) {
    this.#perSecond = maxIdleFramesPerSecond;
    this.#now = now;
  }

  /** Counts one frame; throws when it is one too many. */
  count(): void {
    const second = Math.floor(this.#now() / 1000);
    if (second !== this.#second) {
      this.#second = second;
      this.#count = 0;
    }
    this.#count++;
    if (this.#count <= this.#perSecond) return;
    throw new YamuxError("flood", `more than ${this.#perSecond} frames a second carry nothing`);
  }
}

/** Time after which everything that was under way to a stream has arrived, ms, also over a link that was suspended. */
const ARRIVED_MS = 60_000;

/**
 * Limits the payload for streams that have ended here to what their windows allowed at that moment, because that may
 * have been under way. More than that obeys no window and could be sent without end.
 */
export class LateDataLimit {
  readonly #now: () => number;
  /** Beginning of the present period. */
  #since: number;
  /** Bytes for streams that have ended in this period, and in the one before. */
  #allowed = 0;
  #allowedBefore = 0;

  constructor(now: () => number) {
    this.#now = now;
    this.#since = now();
  }

  /** A stream has ended here whose window still allowed so many bytes. */
  allow(bytes: number): void {
    this.#startPeriod();
    this.#allowed += bytes;
  }

  /** Returns false if the peer had no right to send so many bytes. */
  take(bytes: number): boolean {
    this.#startPeriod();
    const left = this.#allowedBefore - bytes;
    this.#allowedBefore = Math.max(0, left);
    if (left < 0) this.#allowed += left;
    return this.#allowed >= 0;
  }

  #startPeriod(): void {
    const now = this.#now();
    const passedMs = now - this.#since;
    if (passedMs < ARRIVED_MS) return;
    this.#allowedBefore = passedMs < 2 * ARRIVED_MS ? this.#allowed : 0;
    this.#allowed = 0;
    this.#since = now;
  }
}
