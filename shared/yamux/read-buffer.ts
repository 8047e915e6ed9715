import { ByteQueue } from "../basics/bytes.ts";
import { ProgressTracker } from "../limits/reclaim.ts";

/** Where the bytes are counted. */
export interface HeldCounter {
  /** Bytes that are held have changed by `delta`. */
  hold(delta: number): void;
}

/**
 * What a stream has received and its reader has not taken: one piece in the Duplex's own buffer, the rest queued here.
 * Most streams have a reader that takes all at once, so queue and tracker are made only when they are needed.
 */
export class ReadBuffer {
  #counter: HeldCounter;
  readonly #now: () => number;
  #unread = 0;
  /** The part of them that the session counts: not what passes through to a reader that takes it at once. */
  #held = 0;
  /** Unread bytes that the reader had taken and put back; their credit has been given already. */
  #returned = 0;
  #queue: ByteQueue | undefined;
  #progress: ProgressTracker | undefined;
  /** Bytes are left unread, so taking some of them is progress. */
  #isWaiting = false;

  constructor(counter: HeldCounter, now: () => number) {
    this.#counter = counter;
    this.#now = now;
  }

  /** The bytes are counted there from now on. */
  moveTo(counter: HeldCounter): void {
    if (this.#held > 0) this.#counter.hold(-this.#held);
    this.#counter = counter;
    if (this.#held > 0) counter.hold(this.#held);
  }

  /** Bytes that the reader has not taken, queued or in the Duplex's own buffer. */
  get unread(): number {
    return this.#unread;
  }

  get queued(): number {
    return this.#queue?.bytes ?? 0;
  }

  get lastProgressAt(): number {
    return this.#progress?.lastProgressAt ?? 0;
  }

  get longestPauseMs(): number {
    return this.#progress?.longestPauseMs ?? 0;
  }

  enqueue(piece: Buffer): void {
    this.#queue ??= new ByteQueue();
    this.#queue.add(piece);
  }

  dequeue(): Buffer | undefined {
    return this.#queue?.take();
  }

  /** Bytes have arrived. `startWaiting` has to follow when the reader could have taken them. */
  onReceived(bytes: number): void {
    this.#unread += bytes;
  }

  /** What the reader has left waits from now on. */
  startWaiting(): void {
    this.#count();
    if (this.#isWaiting || this.#unread === 0) return;
    this.#isWaiting = true;
    if (this.#progress === undefined) this.#progress = new ProgressTracker(this.#now());
    else this.#progress.restart(this.#now());
  }

  /**
   * Counts what the reader has taken, so that `left` bytes are in the Duplex. Returns the bytes that deserve credit.
   */
  onRead(left: number): number {
    const taken = this.#unread - left - this.queued;
    if (taken <= 0) return 0;
    this.#unread -= taken;
    this.#count();
    if (this.#isWaiting) this.#progress?.progress(this.#now());
    this.#isWaiting &&= this.#unread > 0;
    const again = Math.min(taken, this.#returned);
    this.#returned -= again;
    return taken - again;
  }

  /** Counts what the reader has put back, so that `left` bytes are in the Duplex. */
  onUnshift(left: number): void {
    const returned = left + this.queued - this.#unread;
    if (returned <= 0) return;
    this.#unread += returned;
    this.#returned += returned;
    this.startWaiting();
  }

  clear(): void {
    this.#unread = 0;
    this.#queue = undefined;
    this.#count();
  }

  #count(): void {
    const delta = this.#unread - this.#held;
    if (delta === 0) return;
    this.#held = this.#unread;
    this.#counter.hold(delta);
  }
}
