import type { MemoryHold, MemoryHolder } from "../memory/hold.ts";
import { LookTimer } from "../net/look-timer.ts";
import { Place } from "../queue.ts";

/** How often it is looked whether acknowledgements come, ms. */
const LOOK_MS = 5_000;
/** Without one for so many looks, the peer of a link that has a carrier does not acknowledge any more: 60 s. */
const MOST_LOOKS = 12;
/** Where memory is short, for so many: 10 s. */
const LOOKS_WHEN_SHORT = 2;

/** A link as it is looked at. */
interface Watched {
  readonly isCarried: boolean;
  /** Bytes kept until they are acknowledged, and the offset up to which they have been. */
  readonly bytes: number;
  readonly acked: number;
  end(sentence: string): void;
}

/**
 * Whether the peer of a link acknowledges what it is sent. Only time with a carrier counts, and it goes on counting over a
 * change of carriers: a peer may answer pings, or come again and again, and acknowledge nothing.
 */
export class Unacknowledged implements MemoryHolder, MemoryHold {
  /** As one of those that can free memory. */
  readonly place = new Place<MemoryHolder>(this);
  readonly #link: Watched;
  readonly #look: Place<() => void>;
  #acked = 0;
  /** Looks in a row at which nothing new was acknowledged. */
  #looks = 0;

  constructor(link: Watched) {
    this.#link = link;
    this.#look = LookTimer.every(LOOK_MS).add(this.look);
  }

  /** Called every `LOOK_MS`. */
  readonly look = (): void => {
    const { isCarried, bytes, acked } = this.#link;
    if (bytes === 0 || acked !== this.#acked) this.#looks = 0;
    else if (isCarried) this.#looks++;
    this.#acked = acked;
    if (this.#looks > MOST_LOOKS) {
      this.#link.end(`the other end has acknowledged nothing for ${(MOST_LOOKS * LOOK_MS) / 1_000} s`);
    }
  };

  get held(): number {
    return this.#link.bytes;
  }

  get movedAt(): number {
    return performance.now() - this.#looks * LOOK_MS;
  }

  giveUp(): void {
    this.#link.end("memory is short, and the other end does not acknowledge what it is sent");
  }

  *holds(): Iterable<MemoryHold> {
    if (this.#looks > LOOKS_WHEN_SHORT) yield this;
  }

  stop(): void {
    this.#look.leave();
    this.place.leave();
  }
}
