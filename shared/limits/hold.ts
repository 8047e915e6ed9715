import type { QueueNode } from "../basics/queue.ts";

/** Something that holds memory and whose end frees it: a stream whose reader has stopped, a link whose peer has. */
export interface MemoryHold {
  /** Bytes that its end would free. */
  readonly held: number;
  /** Since when nothing of them has moved, ms on the clock of `performance.now()`. */
  readonly movedAt: number;
  /** The longest time for which they stood still and then moved again, ms; 0: they never did. */
  readonly paceMs: number;
  giveUp(): void;
}

/** What a tenant's sessions, links and connections hold together, against a bound that is none of one's own. */
export interface MemoryAccount {
  /** Half of what may be held is: new streams begin with a small window. */
  readonly isTight: boolean;
  /** No window grows, until enough has been given back. */
  readonly isSpent: boolean;
  /** No stream begins: nothing can be given up, and the process is at its limit, or the tenant at its own. */
  readonly isFull: boolean;
  /** Others need the credit that windows here have beyond their initial size. */
  readonly mustShrink: boolean;
  /** Bytes that are held have changed by `delta`. */
  hold(delta: number): void;
  /**
   * So many of the bytes that are held stay in the kernel although their connection has been ended: a unix socket's, until
   * its reader closes. They count as long as the process is short of memory.
   */
  leaveBehind(bytes: number): void;
  /** Takes credit beyond an initial window from the pool, or says no. */
  reserve(bytes: number): boolean;
  /** That credit is free again. */
  release(bytes: number): void;
  /** A stream has been refused for `isFull`. */
  onRefused(): void;
  /** Who can be asked what it holds, from now on until it leaves its place. */
  enter(place: QueueNode<MemoryHolder>): void;
}

export interface MemoryHolder {
  /** What it could give up. */
  holds(): Iterable<MemoryHold>;
}

/**
 * Emitted by a stream at the moment when it is destroyed, before the event loop turns: what its connection holds beside it
 * stops counting at once, and nobody else is ended for that.
 */
export const DESTROYED = Symbol("destroyed");

/** For sessions that are bounded each by its own budget only. */
export const UNBOUNDED: MemoryAccount = {
  isTight: false,
  isSpent: false,
  isFull: false,
  mustShrink: false,
  hold: () => {},
  leaveBehind: () => {},
  reserve: () => true,
  release: () => {},
  onRefused: () => {},
  enter: () => {},
};

/**
 * When bytes that wait for a reader moved last, and how long they usually stand still. The kernel takes more for a full
 * socket only when a third of its buffer is free: a reader of 100 KB/s moves once in 14 s over TCP, by 1.4 MiB.
 */
export class Movement {
  #at = 0;
  #paceMs = 0;

  get at(): number {
    return this.#at;
  }

  get paceMs(): number {
    return this.#paceMs;
  }

  /** There is something now, after there was nothing. */
  begin(now: number): void {
    this.#at = now;
  }

  /** A part of what was there has been taken. */
  move(now: number): void {
    this.#paceMs = Math.max(this.#paceMs, now - this.#at);
    this.#at = now;
  }
}

/** How much memory is needed, and so whom it is taken from: each takes from those before it as well. */
export const PRESSURE = {
  /** Somebody would like more: from who has stood still for longer than a slow reader does. */
  wanted: 0,
  /** More is held than may be: from who has stood still for a short time, and has not moved after such a time before. */
  limit: 1,
  /** There is no other way: from who makes progress in steps, too. */
  last: 2,
  /** A cluster stays far above its `limits.memory`: from whoever holds most, although it moves. */
  moving: 3,
} as const;
export type Pressure = (typeof PRESSURE)[keyof typeof PRESSURE];

/** Longer than a TCP reader of 100 KB/s stands still (measured: 14.3 s; 2 s on a unix socket), ms. */
const PATIENCE_MS = 20_000;
/** Who takes nothing for less than that is moving, ms: a busy loop or a long path takes no longer. */
const STALLED_MS = 200;

/** From which pressure on a hold is taken from. */
function yieldsTo({ paceMs }: MemoryHold, stalledMs: number): Pressure {
  if (stalledMs < STALLED_MS) return PRESSURE.moving;
  // Twice its pace, for no two steps are alike. Without a bound, one that stood still for an hour once could do so again.
  if (stalledMs < 2 * Math.min(paceMs, PATIENCE_MS)) return PRESSURE.last;
  return stalledMs < PATIENCE_MS ? PRESSURE.limit : PRESSURE.wanted;
}

/**
 * Ends those that hold memory and may be taken from at this pressure, until there is enough: first those that a slow
 * reader cannot be, then those that make progress in steps, and last those that move; among equals those that hold most
 * and have not moved for longest, by the product of both. Returns how many were ended.
 */
export function relieve(holds: Iterable<MemoryHold>, isEnough: () => boolean, now: number, pressure: Pressure): number {
  const candidates: { readonly hold: MemoryHold; readonly from: Pressure; readonly weight: number }[] = [];
  for (const hold of holds) {
    const stalledMs = Math.max(0, now - hold.movedAt);
    const from = yieldsTo(hold, stalledMs);
    if (hold.held > 0 && from <= pressure) {
      candidates.push({ hold, from, weight: hold.held * Math.max(1, stalledMs) });
    }
  }
  candidates.sort((one, other) => one.from - other.from || other.weight - one.weight);
  let count = 0;
  for (const { hold } of candidates) {
    if (isEnough()) break;
    if (hold.held === 0) continue; // it went with another
    hold.giveUp();
    count++;
  }
  return count;
}

/** Ends what held memory for a reader that had stopped or was slow, when that memory is needed. */
export function memoryNeeded(): NodeJS.ErrnoException {
  const sentence = "memory is short, and this connection held some for a reader that has stopped or is slow";
  return Object.assign(new Error(sentence), { code: "ENOBUFS" });
}

export function wasMemoryNeeded(error: Error): boolean {
  return (error as NodeJS.ErrnoException).code === "ENOBUFS";
}
