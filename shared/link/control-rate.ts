import { BadControlMessage } from "./control.ts";

const MAX_PER_SECOND = 100;
/** Ours come 5 ms apart at the soonest; and so many may have been kept up on their way. */
const ACKS_PER_SECOND = 300;
const MAX_ACKS = 15_000;

/** How often a peer may speak beside the payload; throws `BadControlMessage` beyond that. */
export class ControlRate {
  #count = 0;
  #second = 0;
  #acksAllowed = MAX_ACKS;
  #ackedAt = performance.now();

  /** A message that is no ack. */
  count(): void {
    const second = Math.floor(performance.now() / 1000);
    if (second !== this.#second) {
      this.#second = second;
      this.#count = 0;
    }
    this.#count++;
    if (this.#count > MAX_PER_SECOND) throw new BadControlMessage("too many control messages");
  }

  /** A path that stood still delivers the acks of that time at once. */
  countAck(): void {
    const now = performance.now();
    this.#acksAllowed = Math.min(MAX_ACKS, this.#acksAllowed + ((now - this.#ackedAt) / 1000) * ACKS_PER_SECOND);
    this.#ackedAt = now;
    this.#acksAllowed--;
    if (this.#acksAllowed < 0) throw new BadControlMessage("too many acks");
  }
}
