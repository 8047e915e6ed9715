import { QueueNode } from "../basics/queue.ts";
import { SharedInterval } from "../basics/timers.ts";
import type { MemoryHolder } from "../limits/memory-account.ts";
import type { Reclaimable } from "../limits/reclaim.ts";

/** How often it is looked whether acknowledgements come, ms. */
const LOOK_MS = 5_000;
/** A link of which nothing is acknowledged at all during so many looks ends: 60 s. */
const MOST_LOOKS = 12;
/** Where memory is short one may be given up with a byte that has waited for more than so many: 10 s. */
const LOOKS_WHEN_SHORT = 2;
/** A peer makes progress if at its pace all that is kept is acknowledged within so many: 5 min; 16 MiB at 56 KiB/s. */
const DRAINED_WITHIN = 60;

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
 * Whether the peer of a link acknowledges what it is sent. One that acknowledges nothing ends its link. One that
 * acknowledges next to nothing keeps as much memory, and loses its link when that is needed. A slow line may take minutes
 * for what a faster one before it left: its link goes on, and is the last to be given up.
 *
 * Only time with a carrier counts, and it goes on counting over a change of carriers: a peer may answer pings, or come
 * again and again.
 */
export class Unacknowledged implements MemoryHolder, Reclaimable {
  /** As one of those that can free memory. */
  readonly place = new QueueNode<MemoryHolder>(this);
  readonly #link: Watched;
  readonly #look: QueueNode<() => void>;
  /** Where the bytes of the link ended at the last looks, oldest first, as far as the peer has not come there yet. */
  readonly #ends: number[] = [];
  #acked = 0;
  /** In a row, with bytes under way and nothing new acknowledged. */
  #silentLooks = 0;
  /** When the peer was last seen to make progress, if it did so up to now. */
  #progressAt: number | undefined;

  constructor(link: Watched) {
    this.#link = link;
    this.#look = SharedInterval.every(LOOK_MS).add(this.look);
  }

  /** Called every `LOOK_MS`. */
  readonly look = (): void => {
    const { isCarried, bytes, acked } = this.#link;
    const news = acked - this.#acked;
    this.#acked = acked;
    if (news > 0 || bytes === 0) this.#silentLooks = 0;
    while ((this.#ends[0] ?? acked + 1) <= acked) this.#ends.shift();
    if (!isCarried) return;
    this.#progressAt = news * DRAINED_WITHIN >= bytes ? performance.now() : undefined;
    if (bytes === 0) return;
    if (this.#silentLooks === MOST_LOOKS) {
      const seconds = (MOST_LOOKS * LOOK_MS) / 1_000;
      this.#link.end(`the other end has acknowledged nothing for ${seconds} s of what it was sent`);
      return;
    }
    this.#silentLooks++;
    if (this.#ends.length < MOST_LOOKS) this.#ends.push(acked + bytes);
  };

  get held(): number {
    return this.#link.bytes;
  }

  get lastProgressAt(): number {
    return this.#progressAt ?? performance.now() - this.#ends.length * LOOK_MS;
  }

  get longestPauseMs(): number {
    return this.#progressAt === undefined ? 0 : LOOK_MS;
  }

  evict(): void {
    this.#link.end("memory is short, and the other end does not acknowledge what it is sent");
  }

  *reclaimables(): Iterable<Reclaimable> {
    if (this.#ends.length > LOOKS_WHEN_SHORT) yield this;
  }

  stop(): void {
    this.#look.leave();
    this.place.leave();
  }
}
