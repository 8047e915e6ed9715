import { QueueNode } from "../basics/collections.ts";

/** What a tenant's sessions, links and connections hold together, against a bound that they share. */
export interface MemoryAccount {
  /** More than half of the limit is held: new streams begin with a small window. */
  readonly isTight: boolean;
  /** No window grows until enough has been given back. */
  readonly isSpent: boolean;
  /** No stream begins: nothing can be reclaimed, and the process is at its limit, or the tenant at its own. */
  readonly isFull: boolean;
  /** Others need the credit that windows here have beyond their initial size. */
  readonly mustShrink: boolean;
  /** Bytes that are held have changed by `delta`. */
  hold(delta: number): void;
  /**
   * So many bytes stay in the kernel although their connection has been ended: those of a unix socket, until its reader
   * closes. They count as long as the process is short of memory.
   */
  countOrphaned(bytes: number): void;
  /** Takes credit beyond an initial window from the pool. Returns false if there is none. */
  reserve(bytes: number): boolean;
  /** That credit is free again. */
  release(bytes: number): void;
  /** A stream has been refused because of `isFull`. */
  onRefused(): void;
  /** Memory can be reclaimed from this holder until its node leaves the queue. */
  enter(node: QueueNode<MemoryHolder>): void;
}

/** What has entered an account: a session, a link, a connection. */
export interface MemoryHolder {
  /** What could be evicted now. */
  reclaimables(): Iterable<Reclaimable>;
}

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

/** The account of sessions that are bounded by their own budgets only. */
export const UNBOUNDED: MemoryAccount = {
  isTight: false,
  isSpent: false,
  isFull: false,
  mustShrink: false,
  hold: () => {},
  countOrphaned: () => {},
  reserve: () => true,
  release: () => {},
  onRefused: () => {},
  enter: () => {},
};

/**
 * Emitted by a stream at the moment when it is destroyed, before the event loop turns: what its connection holds
 * beside it stops counting at once, so that no other connection is ended for it.
 */
export const DESTROYED = Symbol("destroyed");

/** Ends what held memory for a reader that had stopped or was slow. */
export function memoryNeeded(): NodeJS.ErrnoException {
  const sentence = "memory is short, and this connection held some for a reader that has stopped or is slow";
  return Object.assign(new Error(sentence), { code: "ENOBUFS" });
}

export function wasMemoryNeeded(error: Error): boolean {
  return (error as NodeJS.ErrnoException).code === "ENOBUFS";
}

/** Bytes that a connection keeps until it goes on, counted in the account of whoever pays for them. */
export class HeldBytes implements Reclaimable, MemoryHolder {
  #account: Pick<MemoryAccount, "hold" | "enter">;
  readonly #onEvict: () => void;
  readonly #node = new QueueNode<MemoryHolder>(this);
  #held = 0;
  #lastProgressAt = 0;

  /** @param onEvict ends the connection, because memory is short, and calls `clear` */
  constructor(account: Pick<MemoryAccount, "hold" | "enter">, onEvict: () => void) {
    this.#account = account;
    this.#onEvict = onEvict;
  }

  get held(): number {
    return this.#held;
  }

  /** The time of the last addition. */
  get lastProgressAt(): number {
    return this.#lastProgressAt;
  }

  /** They are never taken in parts. */
  get longestPauseMs(): number {
    return 0;
  }

  add(bytes: number): void {
    this.#held += bytes;
    this.#lastProgressAt = performance.now();
    this.#account.hold(bytes);
    this.#account.enter(this.#node);
  }

  /** From now on another account pays for them. */
  moveTo(account: Pick<MemoryAccount, "hold" | "enter">): void {
    if (this.#held > 0) {
      this.#account.hold(-this.#held);
      account.hold(this.#held);
      account.enter(this.#node);
    }
    this.#account = account;
  }

  /** They are gone, or another object counts them. */
  clear(): void {
    if (this.#held > 0) this.#account.hold(-this.#held);
    this.#held = 0;
    this.#node.leave();
  }

  *reclaimables(): Iterable<Reclaimable> {
    yield this;
  }

  evict(): void {
    this.#onEvict();
  }
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
