import { QueueNode } from "../basics/collections.ts";
import { SharedInterval } from "../basics/timers.ts";
import type { Reclaimable } from "../limits/memory-account.ts";
import { PeerViolation } from "./link-events.ts";

/** How often progress is checked, ms. */
const LOOK_MS = 5_000;
/** A link ends when nothing of it was acknowledged during this number of checks: 60 s. */
const MOST_LOOKS = 12;
/** When memory is short, a link whose oldest byte has waited for more checks than these may be given up: 10 s. */
const LOOKS_WHEN_SHORT = 2;
/** A peer makes progress if at its pace it acknowledges all that is kept within this number of checks: 5 min. */
const DRAINED_WITHIN = 60;
/**
 * A link ends when this number of carriers in a row was lost before the peer acknowledged anything new: a middlebox
 * cuts them for what we send, which would be sent first on the next one, too.
 */
const MOST_FRUITLESS = 8;

/** The link whose progress is checked. */
interface WatchedLink {
  readonly suspended: boolean;
  readonly unacknowledged: number;
  readonly acknowledgedOffset: number;
  destroy(cause: Error): void;
}

/**
 * Checks whether the peer of a link acknowledges the bytes that it is sent. A peer that acknowledges nothing loses its
 * link. A peer that acknowledges next to nothing holds as much memory, and loses its link when memory is short. After a
 * move to a slower line, buffered bytes may need minutes: such a link stays.
 *
 * Only time with a carrier counts, over all carriers together: a peer may answer pings, or reconnect repeatedly.
 */
export class AckProgress implements Reclaimable {
  /** A link that makes progress counts as moving, however slow it is. */
  readonly longestPauseMs = 0;
  /** The place of this link among those that can free memory. */
  readonly place = new QueueNode<Reclaimable>(this);
  readonly #link: WatchedLink;
  readonly #look: QueueNode<() => void>;
  /** Where the link ended at the last checks, oldest first, as far as the peer has not acknowledged it. */
  readonly #ends: number[] = [];
  #acked = 0;
  /** Checks in a row with bytes to acknowledge and none acknowledged. */
  #silentLooks = 0;
  /** The peer made progress at the last check. */
  #makesProgress = false;
  /** Number of carriers in a row that were lost without progress, and what the peer had received at the last loss. */
  #fruitless = 0;
  #ackedAtLoss = -1;
  #lastLoss: Error | undefined;

  constructor(link: WatchedLink) {
    this.#link = link;
    this.#look = SharedInterval.every(LOOK_MS).add(this.look);
  }

  /** Called every `LOOK_MS`. */
  readonly look = (): void => {
    const { suspended, unacknowledged: bytes, acknowledgedOffset: acked } = this.#link;
    const news = acked - this.#acked;
    this.#acked = acked;
    if (news > 0 || bytes === 0) this.#silentLooks = 0;
    while ((this.#ends[0] ?? acked + 1) <= acked) this.#ends.shift();
    if (suspended) return;
    this.#makesProgress = news * DRAINED_WITHIN >= bytes;
    if (bytes === 0) return;
    if (this.#silentLooks === MOST_LOOKS) {
      const seconds = (MOST_LOOKS * LOOK_MS) / 1_000;
      this.#end(`the other end has acknowledged nothing for ${seconds} s of what it was sent`);
      return;
    }
    this.#silentLooks++;
    if (this.#ends.length < MOST_LOOKS) this.#ends.push(acked + bytes);
  };

  #end(sentence: string): void {
    this.#link.destroy(new PeerViolation(sentence));
  }

  onCarrierLost(cause: Error): void {
    const { unacknowledged, acknowledgedOffset } = this.#link;
    const isFruitless = unacknowledged > 0 && acknowledgedOffset === this.#ackedAtLoss;
    this.#fruitless = isFruitless ? this.#fruitless + 1 : 0;
    this.#ackedAtLoss = acknowledgedOffset;
    this.#lastLoss = cause;
  }

  /** Why a new carrier, which has just begun, would not help; `undefined`: it may help. */
  reasonToGiveUp(): Error | undefined {
    if (this.#fruitless < MOST_FRUITLESS || this.#link.acknowledgedOffset !== this.#ackedAtLoss) return undefined;
    const { message } = this.#lastLoss as Error;
    return new Error(`${MOST_FRUITLESS} connections in a row were cut over what was to be sent again: ${message}`, {
      cause: this.#lastLoss,
    });
  }

  get held(): number {
    return this.#ends.length > LOOKS_WHEN_SHORT ? this.#link.unacknowledged : 0;
  }

  get lastProgressAt(): number {
    return performance.now() - (this.#makesProgress ? 0 : this.#ends.length * LOOK_MS);
  }

  evict(): void {
    this.#end("memory is short, and the other end does not acknowledge what it is sent");
  }

  stop(): void {
    this.#look.leave();
    this.place.leave();
  }
}
