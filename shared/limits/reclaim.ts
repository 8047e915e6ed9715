/** Something that holds memory and whose end frees it: a stream whose reader has stopped, a link whose peer has. */
export interface Reclaimable {
  /** Bytes that its end would free. */
  readonly held: number;
  /** Time since when nothing of them has moved, ms on the clock of `performance.now()`. */
  readonly lastProgressAt: number;
  /** The longest time for which they stood still and then moved again, ms; 0: they never did. */
  readonly longestPauseMs: number;
  /** Ends it, because memory is short. */
  evict(): void;
}

/**
 * When bytes that wait for a reader moved last, and how long they usually stand still. The kernel takes more for a full
 * socket only when a third of its buffer is free: a reader of 100 KB/s moves once in 14 s over TCP, by 1.4 MiB.
 */
export class ProgressTracker {
  lastProgressAt: number;
  longestPauseMs = 0;

  /** Something waits from now on, after there was nothing. */
  constructor(now: number) {
    this.lastProgressAt = now;
  }

  /** Something waits again, after there was nothing. */
  restart(now: number): void {
    this.lastProgressAt = now;
  }

  /** A part of what waits has been taken. */
  progress(now: number): void {
    this.longestPauseMs = Math.max(this.longestPauseMs, now - this.lastProgressAt);
    this.lastProgressAt = now;
  }
}

/** Whom memory is taken from; each level includes those before it. */
export const RECLAIM = {
  /** From readers that have stood still for longer than a slow one does: taken when somebody needs more memory. */
  longStalled: 0,
  /** From readers that stand still and have not moved after such a pause before: more is held than may be. */
  stalled: 1,
  /** From readers that make progress in steps: nothing else is left. */
  slow: 2,
  /** From whoever holds most, even if it moves: a cluster stays far above its `limits.memory`. */
  moving: 3,
} as const;
export type ReclaimLevel = (typeof RECLAIM)[keyof typeof RECLAIM];

/** Longer than a TCP reader of 100 KB/s stands still (measured: 14.3 s; 2 s on a unix socket), ms. */
const LONGEST_SLOW_PAUSE_MS = 20_000;
/** A reader that has paused for less is moving, ms: a busy event loop or a long path takes no longer. */
const SHORTEST_STALL_MS = 200;

/** The first level at which memory is taken from this reader. */
function levelOf({ longestPauseMs }: Reclaimable, stalledMs: number): ReclaimLevel {
  if (stalledMs < SHORTEST_STALL_MS) return RECLAIM.moving;
  // Twice its longest pause, because pauses vary; bounded, or one that paused for an hour once could do so again.
  if (stalledMs < 2 * Math.min(longestPauseMs, LONGEST_SLOW_PAUSE_MS)) return RECLAIM.slow;
  return stalledMs < LONGEST_SLOW_PAUSE_MS ? RECLAIM.stalled : RECLAIM.longStalled;
}

/**
 * Evicts those that hold memory, up to this level, until `isEnough`. Those of a lower level go first; within a level
 * the one with the largest product of bytes and time without progress. Returns how many were evicted.
 */
export function reclaim(
  candidates: Iterable<Reclaimable>,
  isEnough: () => boolean,
  now: number,
  level: ReclaimLevel,
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
    candidate.evict();
    count++;
  }
  return count;
}
