import { QueueNode } from "../basics/collections.ts";
import { seconds } from "../basics/text.ts";
import { SharedInterval } from "../basics/timers.ts";
import type { MemoryHolder, Reclaimable } from "../limits/memory-account.ts";
import type { Link } from "./link.ts";
import { PeerViolation } from "./link-events.ts";

// ── of a carrier: the peer speaks and reads ─────────────────────────────────────────────────────────────────────────

/** How often the peer is checked in an interval. */
const LOOKS = 8;
/** After silence of so many intervals the carrier is lost, even if TCP reports nothing. */
const DEAD_AFTER_INTERVALS = 2.5;
/** A peer that sends may take so long to read on, ms: it acknowledges nothing while it opens another carrier. */
const LEAST_STUCK_MS = 10_000;
/** Pings are sent after 0.8 to 1.2 intervals, so that thousands of carriers do not send theirs together. */
const JITTER = 0.2;

/** How long a peer takes to notice that nothing arrives any more, ms. */
export function silenceMs(keepaliveMs: number): number {
  return DEAD_AFTER_INTERVALS * keepaliveMs;
}

export interface LivenessActions {
  ping(): void;
  /** The carrier is lost. Called once. */
  dead(sentence: string): void;
  /** A ping was answered after this time, ms. */
  echo?(ms: number): void;
  /** How far the peer has read, in any unit; `undefined`: nothing waits for it. */
  readonly progress?: readonly (() => number | undefined)[];
}

/** How far a peer had read at the last check, and in how many checks since then it read nothing of what waited. */
interface Reader {
  readonly progress: () => number | undefined;
  at: number | undefined;
  looks: number;
}

/** Sends pings, and notices when the peer has fallen silent, or sends and reads nothing. */
export class Liveness {
  readonly #actions: LivenessActions;
  #intervalMs: number;
  readonly #startedAt = performance.now();
  #lastByteAt = this.#startedAt;
  #quietMs = 0;
  #watchedAt = performance.now();
  /** When the oldest unanswered ping was sent. */
  #askedAt: number | undefined;
  /** When this process was last found to have been stopped (SIGSTOP, a frozen machine). */
  #wokenAt = 0;
  readonly #readers: readonly Reader[];
  #pingTimer: NodeJS.Timeout | undefined;
  #probeTimer: NodeJS.Timeout | undefined;
  #stopped = false;
  #watchTimer: NodeJS.Timeout | undefined;

  constructor(intervalMs: number, actions: LivenessActions) {
    this.#intervalMs = intervalMs;
    this.#actions = actions;
    this.#readers = (actions.progress ?? []).map((progress) => ({ progress, at: undefined, looks: 0 }));
    this.#schedule();
  }

  received(): void {
    const now = performance.now();
    this.#quietMs = Math.max(this.#quietMs, now - this.#lastByteAt);
    this.#lastByteAt = now;
  }

  /** What a loss of the carrier is reported with, ms: see `CarrierLost`. */
  get times(): { readonly ageMs: number; readonly idleMs: number; readonly quietMs: number } {
    const now = performance.now();
    return { ageMs: now - this.#startedAt, idleMs: now - this.#lastByteAt, quietMs: this.#quietMs };
  }

  /** A pong arrived. It does not say to which ping it belongs, so the longest time counts. */
  answered(): void {
    if (this.#askedAt === undefined) return;
    const ms = performance.now() - this.#askedAt;
    this.#askedAt = undefined;
    this.#actions.echo?.(ms);
  }

  #ping(): void {
    this.#askedAt ??= performance.now();
    this.#actions.ping();
  }

  /** Sends a ping now: without a byte within `withinMs` the carrier is lost. */
  probe(withinMs: number): void {
    if (this.#probeTimer !== undefined || this.#stopped) return;
    const since = performance.now();
    this.#probeTimer = setTimeout(() => {
      this.#probeTimer = undefined;
      const silentMs = performance.now() - since;
      if (this.#lastByteAt >= since) return;
      // A timer that is so late means that this process was stopped and has not read what arrived.
      if (silentMs > 2 * withinMs) this.probe(withinMs);
      else this.#die(silentMs);
    }, withinMs).unref();
    this.#ping();
  }

  setInterval(intervalMs: number): void {
    if (intervalMs === this.#intervalMs) return;
    this.#intervalMs = intervalMs;
    clearTimeout(this.#pingTimer);
    clearInterval(this.#watchTimer);
    this.#schedule();
  }

  stop(): void {
    this.#stopped = true;
    clearTimeout(this.#probeTimer);
    clearTimeout(this.#pingTimer);
    clearInterval(this.#watchTimer);
  }

  #schedule(): void {
    this.#watchedAt = performance.now();
    this.#schedulePing();
    this.#watchTimer = setInterval(this.#watch, this.#intervalMs / LOOKS).unref();
  }

  #schedulePing(): void {
    const jittered = this.#intervalMs * (1 - JITTER + 2 * JITTER * Math.random());
    this.#pingTimer = setTimeout(() => {
      this.#schedulePing(); // first, because a ping that cannot be sent may call stop()
      this.#ping();
    }, jittered).unref();
  }

  readonly #watch = (): void => {
    const now = performance.now();
    const wasStopped = now - this.#watchedAt > this.#intervalMs;
    this.#watchedAt = now;
    // A process that was stopped did not read. What waits in the kernel comes first.
    if (wasStopped) this.#wokenAt = now;
    const silentMs = now - Math.max(this.#lastByteAt, this.#wokenAt);
    if (silentMs >= silenceMs(this.#intervalMs)) this.#die(now - this.#lastByteAt);
    else if (!wasStopped && this.#readers.some((reader) => this.#isStuck(reader))) this.#dieUnread();
  };

  /** Whether the peer has read nothing for too long. On a slow path it reads something now and then. */
  #isStuck(reader: Reader): boolean {
    const at = reader.progress();
    reader.looks = at === undefined || at !== reader.at ? 0 : reader.looks + 1;
    reader.at = at;
    return (reader.looks * this.#intervalMs) / LOOKS >= this.#stuckMs;
  }

  get #stuckMs(): number {
    return Math.max(silenceMs(this.#intervalMs), LEAST_STUCK_MS);
  }

  #dieUnread(): void {
    this.stop();
    this.#actions.dead(`the peer speaks, and has read nothing for ${seconds(this.#stuckMs)}`);
  }

  #die(silentMs: number): void {
    this.stop();
    this.#actions.dead(`nothing was received for ${(silentMs / 1000).toFixed(1)} s`);
  }
}

// ── of a link: the peer acknowledges ────────────────────────────────────────────────────────────────────────────────

/** How often progress is checked, ms. */
const LOOK_MS = 5_000;
/** A link of which nothing is acknowledged during so many checks ends: 60 s. */
const MOST_LOOKS = 12;
/** When memory is short, a link may be given up with a byte that has waited for more than so many checks: 10 s. */
const LOOKS_WHEN_SHORT = 2;
/** A peer makes progress if at its pace it acknowledges all that is kept within so many checks: 5 min. */
const DRAINED_WITHIN = 60;
/**
 * A link ends with so many carriers in a row that were lost before the peer had more: a middlebox cuts them for what we
 * send, which would be sent first on the next one, too.
 */
const MOST_FRUITLESS = 8;

type WatchedLink = Pick<Link, "suspended" | "unacknowledged" | "acknowledged" | "destroy">;

/**
 * Checks whether the peer of a link acknowledges what it is sent. A peer that acknowledges nothing loses its link. One
 * that acknowledges next to nothing holds as much memory, and loses its link when memory is short. A slow line may take
 * minutes for what a faster one before it left: its link goes on, and is the last to be given up.
 *
 * Only time with a carrier counts, over all carriers together: a peer may answer pings, or come again and again.
 */
export class AckProgress implements MemoryHolder, Reclaimable {
  /** Its place among those that can free memory. */
  readonly place = new QueueNode<MemoryHolder>(this);
  readonly #link: WatchedLink;
  readonly #look: QueueNode<() => void>;
  /** Where the link ended at the last checks, oldest first, as far as the peer has not acknowledged it. */
  readonly #ends: number[] = [];
  #acked = 0;
  /** Checks in a row with bytes to acknowledge and none acknowledged. */
  #silentLooks = 0;
  /** When the peer was last seen to make progress, if it did so at the last check. */
  #progressAt: number | undefined;
  /** Carriers in a row that were lost without progress, and what the peer had at the last loss. */
  #fruitless = 0;
  #ackedAtLoss = -1;

  constructor(link: WatchedLink) {
    this.#link = link;
    this.#look = SharedInterval.every(LOOK_MS).add(this.look);
  }

  /** Called every `LOOK_MS`. */
  readonly look = (): void => {
    const { suspended, unacknowledged: bytes, acknowledged: acked } = this.#link;
    const news = acked - this.#acked;
    this.#acked = acked;
    if (news > 0 || bytes === 0) this.#silentLooks = 0;
    while ((this.#ends[0] ?? acked + 1) <= acked) this.#ends.shift();
    if (suspended) return;
    this.#progressAt = news * DRAINED_WITHIN >= bytes ? performance.now() : undefined;
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

  /** The carrier was lost, and the link is suspended. */
  onCarrierLost(): void {
    const { unacknowledged, acknowledged } = this.#link;
    const isFruitless = unacknowledged > 0 && acknowledged === this.#ackedAtLoss;
    this.#fruitless = isFruitless ? this.#fruitless + 1 : 0;
    this.#ackedAtLoss = acknowledged;
  }

  /** Why it is in vain to resume at this offset once more; `undefined`: it is not. */
  hopeless(peerReceived: number, cause: Error | undefined): Error | undefined {
    if (this.#fruitless < MOST_FRUITLESS || peerReceived !== this.#ackedAtLoss) return undefined;
    const last = cause === undefined ? "" : `: ${cause.message}`;
    return new Error(`${MOST_FRUITLESS} connections in a row were cut over what was to be sent again${last}`, {
      cause,
    });
  }

  get held(): number {
    return this.#link.unacknowledged;
  }

  get lastProgressAt(): number {
    return this.#progressAt ?? performance.now() - this.#ends.length * LOOK_MS;
  }

  get longestPauseMs(): number {
    return this.#progressAt === undefined ? 0 : LOOK_MS;
  }

  evict(): void {
    this.#end("memory is short, and the other end does not acknowledge what it is sent");
  }

  *reclaimables(): Iterable<Reclaimable> {
    if (this.#ends.length > LOOKS_WHEN_SHORT) yield this;
  }

  stop(): void {
    this.#look.leave();
    this.place.leave();
  }
}
