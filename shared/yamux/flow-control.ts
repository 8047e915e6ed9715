import { ByteQueue } from "../basics/bytes.ts";
import { YamuxError } from "./errors.ts";

/** The reader keeps up when it takes half a window within this many round trips: then the window is too small. */
const GROW_WITHIN_ROUND_TRIPS = 4;

/**
 * Credit is sent at the latest when this many bytes are owed: on a long path, half of a large window would not be used.
 */
const MAX_OWED = 2 * 1024 * 1024;

/** Where the growth of windows is taken from. */
export interface CreditBudget {
  /** Takes `bytes` of credit beyond an initial window. Returns false if there are not enough. */
  reserve(bytes: number): boolean;
  /** Some of it is free again. */
  giveBack(bytes: number): void;
  /** Others need it. */
  readonly mustShrink: boolean;
}

/** Where a stream counts what it holds and takes credit from: its session, and the account that pays for it. */
export interface StreamMemory extends CreditBudget {
  /** Bytes that are held have changed by `delta`. */
  hold(delta: number): void;
}

/** The times by which the growth of a window is decided. */
interface PathTimes {
  now(): number;
  readonly roundTripMs: number;
}

/**
 * The receiving half of a stream's flow control: what the peer may still send, and when to let it send more.
 *
 * `Stream` calls `consume` for bytes that the reader has taken, never for bytes that merely arrived, so a reader that
 * stops costs at most one window. Credit is given in halves of the window, or in steps of 2 MiB: one update for many
 * reads.
 */
export class ReceiveWindow {
  /** Bytes the peer may have under way or in our buffer. */
  size: number;
  readonly initialSize: number;
  /** Bytes the peer may still send. */
  allowance: number;
  readonly #maxSize: number;
  /** Bytes read and not yet given back. */
  #owed = 0;
  /** Bytes given back in the present half window, by whose duration growth is decided. */
  #ofHalf = 0;
  #halfBegunAt: number;

  constructor(size: number, maxSize: number, now: number) {
    this.size = size;
    this.initialSize = size;
    this.#maxSize = maxSize;
    this.allowance = size;
    this.#halfBegunAt = now;
  }

  /** Credit taken from the session's budget so far. */
  get reserved(): number {
    return this.size - this.initialSize;
  }

  /** The peer sends `length` bytes. Returns false if it had no right to. */
  receive(length: number): boolean {
    if (length > this.allowance) return false;
    this.allowance -= length;
    return true;
  }

  /** The reader took `length` bytes. Returns the credit to send now: 0 until enough is owed. */
  consume(length: number, budget: CreditBudget, path: PathTimes): number {
    this.#owed += length;
    if (this.#owed * 2 < this.size && this.#owed < MAX_OWED) return 0;
    let credit = this.#owed;
    this.#owed = 0;
    if (budget.mustShrink) credit -= this.#shrink(credit, budget);
    this.#ofHalf += credit;
    if (this.#ofHalf * 2 >= this.size) {
      const at = path.now();
      credit += this.#growth(budget, at - this.#halfBegunAt, path);
      this.#halfBegunAt = at;
      this.#ofHalf = 0;
    }
    this.allowance += credit;
    return credit;
  }

  /**
   * Withholds credit, so that the window shrinks, at most to its initial size. Returns the number of bytes that are
   * withheld.
   */
  #shrink(credit: number, budget: CreditBudget): number {
    const withheld = Math.min(credit, this.reserved);
    this.size -= withheld;
    if (withheld > 0) budget.giveBack(withheld);
    return withheld;
  }

  #growth(budget: CreditBudget, elapsedMs: number, path: PathTimes): number {
    const growth = Math.min(this.size, this.#maxSize - this.size);
    if (growth <= 0 || budget.mustShrink || elapsedMs >= GROW_WITHIN_ROUND_TRIPS * path.roundTripMs) return 0;
    if (!budget.reserve(growth)) return 0;
    this.size += growth;
    return growth;
  }
}

/**
 * Bytes that a stream has received and its reader has not taken: one piece in the Duplex's own buffer, the rest queued
 * here. Most streams have a reader that takes all at once, so the queue is made only when it is needed.
 */
export class ReadBuffer {
  /** Bytes that the reader has not taken, queued or in the Duplex's own buffer. */
  unread = 0;
  /** When bytes that wait for the reader moved last. */
  lastProgressAt = 0;
  /** The longest time for which the reader took nothing, and then did again, ms. */
  longestPauseMs = 0;
  #counter: StreamMemory;
  readonly #now: () => number;
  /** The part of `unread` that the session counts: not what passes through to a reader that takes it at once. */
  #held = 0;
  /** Unread bytes that the reader had taken and put back; their credit has been given already. */
  #returned = 0;
  #queue: ByteQueue | undefined;

  constructor(counter: StreamMemory, now: () => number) {
    this.#counter = counter;
    this.#now = now;
  }

  /** The bytes are counted there from now on. */
  moveTo(counter: StreamMemory): void {
    if (this.#held > 0) this.#counter.hold(-this.#held);
    this.#counter = counter;
    if (this.#held > 0) counter.hold(this.#held);
  }

  get queued(): number {
    return this.#queue?.bytes ?? 0;
  }

  enqueue(piece: Buffer): void {
    this.#queue ??= new ByteQueue();
    this.#queue.add(piece);
  }

  dequeue(): Buffer | undefined {
    return this.#queue?.take();
  }

  /** Bytes have arrived. `count` has to follow when the reader could have taken them. */
  onReceived(bytes: number): void {
    this.unread += bytes;
  }

  /**
   * Counts what the reader has taken, so that `left` bytes are in the Duplex. Returns the bytes that deserve credit.
   */
  onRead(left: number): number {
    const taken = this.unread - left - this.queued;
    if (taken <= 0) return 0;
    this.unread -= taken;
    if (this.#held > 0) this.#onProgress(this.#now());
    this.count();
    const again = Math.min(taken, this.#returned);
    this.#returned -= again;
    return taken - again;
  }

  /** Counts what the reader has put back, so that `left` bytes are in the Duplex. */
  onUnshift(left: number): void {
    const returned = left + this.queued - this.unread;
    if (returned <= 0) return;
    this.unread += returned;
    this.#returned += returned;
    this.count();
  }

  clear(): void {
    this.unread = 0;
    this.#queue = undefined;
    this.count();
  }

  #onProgress(now: number): void {
    this.longestPauseMs = Math.max(this.longestPauseMs, now - this.lastProgressAt);
    this.lastProgressAt = now;
  }

  /** Counts what the reader has left, which waits from now on. */
  count(): void {
    const delta = this.unread - this.#held;
    if (delta === 0) return;
    if (this.#held === 0) this.lastProgressAt = this.#now();
    this.#held = this.unread;
    this.#counter.hold(delta);
  }
}

const REFRESH_EVERY_MS = 5_000;
const KEPT_SAMPLES = 4;
/** When this many pings are unanswered, the peer does not answer, and no more are sent. */
const MAX_UNDER_WAY = 64;

interface Ping {
  readonly sentAt: number;
  resolve(roundTripMs: number): void;
  reject(error: Error): void;
}

/** The pings of a session, and the shortest of its last round trips. */
export class Pings implements PathTimes {
  readonly now: () => number;
  readonly #send: (value: number) => void;
  readonly #underWay = new Map<number, Ping>();
  #samples: number[] = [];
  #nextValue = 1;
  #refreshedAt = Number.NEGATIVE_INFINITY;
  #stopped = false;

  constructor(now: () => number, send: (value: number) => void) {
    this.now = now;
    this.#send = send;
  }

  /** The shortest of the last round trips, ms; 0 before the first answer. */
  leastMs = 0;

  ping(): Promise<number> {
    return new Promise((resolve, reject) => this.#start({ sentAt: this.now(), resolve, reject }));
  }

  /** `leastMs`; asking for it measures again if it is old, so that no timer is needed. */
  get roundTripMs(): number {
    this.refresh();
    return this.leastMs;
  }

  refresh(): void {
    const now = this.now();
    if (this.#stopped || now - this.#refreshedAt < REFRESH_EVERY_MS) return;
    this.#refreshedAt = now;
    this.#start({ sentAt: now, resolve: () => {}, reject: () => {} });
  }

  #start(ping: Ping): void {
    if (this.#stopped) {
      ping.reject(new YamuxError("closed", "the session has ended"));
      return;
    }
    if (this.#underWay.size >= MAX_UNDER_WAY) {
      ping.reject(new YamuxError("overloaded", `${MAX_UNDER_WAY} pings are unanswered`));
      return;
    }
    const value = this.#nextValue;
    this.#nextValue = (this.#nextValue + 1) >>> 0;
    this.#underWay.set(value, ping);
    this.#send(value);
  }

  /** The peer has answered; an answer to no ping is ignored. */
  onAnswer(value: number): void {
    const ping = this.#underWay.get(value);
    if (ping === undefined) return;
    this.#underWay.delete(value);
    const elapsed = this.now() - ping.sentAt;
    this.#samples.push(elapsed);
    if (this.#samples.length > KEPT_SAMPLES) this.#samples.shift();
    this.leastMs = Math.min(...this.#samples);
    ping.resolve(elapsed);
  }

  stop(reason: Error | undefined): void {
    this.#stopped = true;
    for (const ping of this.#underWay.values()) {
      ping.reject(new YamuxError("closed", "the session ended before the ping was answered", { cause: reason }));
    }
    this.#underWay.clear();
  }
}
