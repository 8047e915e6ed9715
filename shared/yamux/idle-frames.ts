import { YamuxError } from "./errors.ts";

/** Frames that carry nothing cost us more than the peer who sends them: so many a second, and no more. */
export class IdleFrames {
  readonly #perSecond: number;
  readonly #now: () => number;
  #second = 0;
  #count = 0;

  constructor(perSecond: number, now: () => number) {
    this.#perSecond = perSecond;
    this.#now = now;
  }

  /** One more; throws when it is one too many. */
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
