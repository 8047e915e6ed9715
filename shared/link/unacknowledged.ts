import type { MemoryHold, MemoryHolder } from "../memory/hold.ts";
import { LookTimer } from "../net/look-timer.ts";
import { Place } from "../queue.ts";

/** How often it is looked whether acknowledgements come, ms. */
const LOOK_MS = 5_000;
/** A byte that has a carrier and is not acknowledged for so many looks ends its link: 60 s. */
const MOST_LOOKS = 12;
/** Where memory is short, for so many: 10 s. */
const LOOKS_WHEN_SHORT = 2;

/** A link as it is looked at. */
interface Watched {
  readonly isCarried: boolean;
  /** Bytes kept until they are acknowledged. */
  readonly bytes: number;
  /** The offset up to which they have been. */
  readonly acked: number;
  end(sentence: string): void;
}

/**
 * Whether the peer of a link acknowledges what it is sent, byte by byte: one that acknowledges a little now and then keeps
 * as much memory as one that is silent. Only time with a carrier counts, and it goes on counting over a change of carriers: a
 * peer may answer pings, or come again and again.
 */
export class Unacknowledged implements MemoryHolder, MemoryHold {
  /** As one of those that can free memory. */
  readonly place = new Place<MemoryHolder>(this);
  readonly #link: Watched;
  readonly #look: Place<() => void>;
  /** Where the bytes of the link ended at each look, oldest first, as far as the peer has not come there yet. */
  readonly #ends: number[] = [];

  constructor(link: Watched) {
    this.#link = link;
    this.#look = LookTimer.every(LOOK_MS).add(this.look);
  }

  /** Called every `LOOK_MS`. */
  readonly look = (): void => {
    const { isCarried, bytes, acked } = this.#link;
    while ((this.#ends[0] ?? acked + 1) <= acked) this.#ends.shift();
    if (!isCarried) return;
    if (this.#ends.length === MOST_LOOKS) {
      this.#link.end(`the other end has not acknowledged within ${(MOST_LOOKS * LOOK_MS) / 1_000} s what it was sent`);
    } else if (bytes > 0) this.#ends.push(acked + bytes);
  };

  get held(): number {
    return this.#link.bytes;
  }

  get movedAt(): number {
    return performance.now() - this.#ends.length * LOOK_MS;
  }

  /** A slow line acknowledges each byte sooner than `holds` asks. */
  get paceMs(): number {
    return 0;
  }

  giveUp(): void {
    this.#link.end("memory is short, and the other end does not acknowledge what it is sent");
  }

  *holds(): Iterable<MemoryHold> {
    if (this.#ends.length > LOOKS_WHEN_SHORT) yield this;
  }

  stop(): void {
    this.#look.leave();
    this.place.leave();
  }
}
