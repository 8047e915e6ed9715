import type { Place } from "../queue.ts";

/** Something that holds memory and whose end frees it: a stream whose reader has stopped, a link whose peer has. */
export interface MemoryHold {
  /** Bytes that its end would free. */
  readonly held: number;
  /** Since when nothing of them has moved, ms on the clock of `performance.now()`. */
  readonly movedAt: number;
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
  enter(place: Place<MemoryHolder>): void;
}

export interface MemoryHolder {
  /** What it could give up. */
  holds(): Iterable<MemoryHold>;
}

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

/** Who takes or acknowledges nothing for so long has stopped, ms; a busy loop or a long path is faster. */
const STALLED_MS = 200;

/**
 * Ends those that hold most and have not moved for longest, by the product of both, until there is enough. Whoever has
 * moved within `leastMs` is left alone. Returns how many were ended.
 */
export function relieve(
  holds: Iterable<MemoryHold>,
  isEnough: () => boolean,
  now: number,
  leastMs = STALLED_MS,
): number {
  const stalled: { readonly hold: MemoryHold; readonly weight: number }[] = [];
  for (const hold of holds) {
    const stalledMs = Math.max(0, now - hold.movedAt);
    if (hold.held > 0 && stalledMs >= leastMs) stalled.push({ hold, weight: hold.held * Math.max(1, stalledMs) });
  }
  stalled.sort((one, other) => other.weight - one.weight);
  let count = 0;
  for (const { hold } of stalled) {
    if (isEnough()) break;
    if (hold.held === 0) continue; // it went with another
    hold.giveUp();
    count++;
  }
  return count;
}

/**
 * A piece is a view of the read that it came in, and keeps all of that alive. What is less than half of it is better
 * copied: then what is held is at most twice what is counted, whatever a peer has put around it.
 */
export function holdsTooMuch(piece: Buffer): boolean {
  return piece.length * 2 < piece.buffer.byteLength;
}

/** The same bytes, as something that may be kept. */
export function compact(piece: Buffer): Buffer {
  if (!holdsTooMuch(piece)) return piece;
  const copy = Buffer.allocUnsafeSlow(piece.length); // one of Node's pool would keep 8 KiB alive
  piece.copy(copy);
  return copy;
}

/** Ends what held memory for a reader that had stopped or was slow, when that memory is needed. */
export function memoryNeeded(): NodeJS.ErrnoException {
  const sentence = "memory is short, and this connection held some for a reader that has stopped or is slow";
  return Object.assign(new Error(sentence), { code: "ENOBUFS" });
}

export function wasMemoryNeeded(error: Error): boolean {
  return (error as NodeJS.ErrnoException).code === "ENOBUFS";
}
