import type { Reclaimable } from "./memory-account.ts";

/** Whom memory is taken from; each level includes those before it. */
export const RECLAIM = {
  /** From readers that have stood still for longer than a slow one does: taken when somebody needs more memory. */
  longStalled: 0,
  /** From readers that have stopped and have never moved after such a pause: more is held than allowed. */
  stalled: 1,
  /** From readers that make progress in steps, as those behind a large socket buffer do: nothing else is left. */
  slow: 2,
  /** From the connections that hold most, even if they move: a cluster stays far above its `limits.memory`. */
  moving: 3,
} as const;
export type ReclaimLevel = (typeof RECLAIM)[keyof typeof RECLAIM];

/** Longer than the pauses of a TCP reader of 100 KB/s (measured: 14.3 s; 2 s on a unix socket), ms. */
const LONGEST_SLOW_PAUSE_MS = 20_000;
/** A reader that has paused for less is moving, ms: a busy event loop or a long path takes no longer. */
const SHORTEST_STALL_MS = 200;

/** The first level at which memory is taken from a reader that has stood still for this time. */
function levelOf({ longestPauseMs }: Reclaimable, stalledMs: number): ReclaimLevel {
  if (stalledMs < SHORTEST_STALL_MS) return RECLAIM.moving;
  // Twice its longest pause, because pauses vary; bounded, or one that paused for an hour once could do so again.
  if (stalledMs < 2 * Math.min(longestPauseMs, LONGEST_SLOW_PAUSE_MS)) return RECLAIM.slow;
  return stalledMs < LONGEST_SLOW_PAUSE_MS ? RECLAIM.stalled : RECLAIM.longStalled;
}

/**
 * Evicts holders of memory, up to this level, until `isEnough`. Holders of a lower level go first; within a level the
 * holder with the largest product of bytes and time without progress. Returns how many were evicted.
 *
 * @param sentence why they are evicted; left out: memory is short
 */
export function reclaim(
  candidates: Iterable<Reclaimable>,
  isEnough: () => boolean,
  now: number,
  level: ReclaimLevel,
  sentence?: string,
): number {
  const found: { readonly candidate: Reclaimable; readonly level: ReclaimLevel; readonly weight: number }[] = [];
  for (const candidate of candidates) {
    const stalledMs = Math.max(0, now - candidate.lastProgressAt);
    const own = levelOf(candidate, stalledMs);
    if (candidate.held > 0 && own <= level) {
      found.push({ candidate, level: own, weight: candidate.held * Math.max(1, stalledMs) });
    }
  }
  found.sort((one, other) => one.level - other.level || other.weight - one.weight);
  let count = 0;
  for (const { candidate } of found) {
    if (isEnough()) break;
    if (candidate.held === 0) continue; // it ended together with another
    candidate.evict(sentence);
    count++;
  }
  return count;
}

/** When not enough could be reclaimed, it is tried again after this time, ms. */
const AGAIN_MS = 50;

/** When memory is reclaimed next. */
export class ReclaimPasses {
  readonly #pass: () => void;
  #soon: NodeJS.Immediate | undefined;
  #later: NodeJS.Timeout | undefined;

  constructor(pass: () => void) {
    this.#pass = pass;
  }

  /** At the end of this turn of the event loop, unless a pass was put off. */
  soon(): void {
    if (this.#later === undefined) this.#soon ??= setImmediate(this.#onDue);
  }

  later(): void {
    if (this.#soon === undefined) this.#later ??= setTimeout(this.#onDue, AGAIN_MS).unref();
  }

  readonly #onDue = (): void => {
    this.forget();
    this.#pass();
  };

  forget(): void {
    clearImmediate(this.#soon);
    clearTimeout(this.#later);
    this.#soon = undefined;
    this.#later = undefined;
  }
}

/** Reclaiming goes down to this share of a limit, so that it does not begin again with every chunk. */
export const RECLAIM_TO = 0.9;
/** A cluster whose connections hold more than its cap for this time, ms, gets no new ones. */
const REFUSED_AFTER_MS = 200;
/** A cluster whose connections hold more than `times` its cap for `afterMs` loses connections that still move, too. */
const OVERRUN = { times: 2, afterMs: 1_000 };

/** The time in which the connections of a cluster hold more than its cap (`limits.memory`). */
export class CapOverrun {
  readonly #since: number;
  /** Since when they have held `OVERRUN.times` the cap, ms; `undefined`: they do not. */
  #farSince: number | undefined;

  constructor(now: number) {
    this.#since = now;
  }

  /** Whether the connections still hold more, although those that had stopped were ended. */
  get lasts(): boolean {
    return performance.now() - this.#since >= REFUSED_AFTER_MS;
  }

  /**
   * Ends connections; returns how many. Connections that still move are ended only when the cluster stays far above the
   * cap: readers that take a byte now and then would hold as much as readers that have stopped.
   */
  reclaim(connections: Iterable<Reclaimable>, held: () => number, cap: number, now: number): number {
    const reclaimTo = (bytes: number, level: ReclaimLevel) => reclaim(connections, () => held() <= bytes, now, level);
    const ended = reclaimTo(cap * RECLAIM_TO, RECLAIM.stalled);
    const most = cap * OVERRUN.times;
    this.#farSince = held() > most ? (this.#farSince ?? now) : undefined;
    if (this.#farSince === undefined || now - this.#farSince < OVERRUN.afterMs) return ended;
    return ended + reclaimTo(most, RECLAIM.moving);
  }
}
