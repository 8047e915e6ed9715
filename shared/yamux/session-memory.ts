import { QueueNode } from "../basics/queue.ts";
import type { MemoryAccount, MemoryHolder } from "../limits/memory-account.ts";
import { RECLAIM, reclaim } from "../limits/reclaim.ts";
import { AccountPart, type PartOwner } from "./account-part.ts";
import type { Stream } from "./stream.ts";
import type { SharedStreamMemory, StreamMemory } from "./stream-wire.ts";

/** Above its budget a session resets streams whose readers have stopped, in this interval, ms. */
const RECLAIM_MS = 50;
/** It does so until it holds less than this share of its budget. */
const RECLAIM_TO = 0.9;

/**
 * What the streams of one session hold, against the session's budget and the pool. Streams that another account pays
 * for are in a part of their own.
 */
export class SessionMemory implements MemoryHolder, SharedStreamMemory {
  /** Streams reset because the session held more than its budget. */
  resets = 0;
  readonly #budget: number;
  readonly #pool: MemoryAccount;
  readonly #now: () => number;
  readonly #open: Iterable<Stream>;
  /** Streams that are over on the wire, with bytes that no reader has taken yet. */
  readonly #unreadStreams = new Set<Stream>();
  readonly #node = new QueueNode<MemoryHolder>(this);
  /** What other accounts than the pool pay for. */
  #parts: Map<MemoryAccount, AccountPart> | undefined;
  #reservedCredit = 0;
  #held = 0;
  #timer: NodeJS.Timeout | undefined;

  /** @param open the streams of the session that are not over */
  constructor(budget: number, pool: MemoryAccount, now: () => number, open: Iterable<Stream>) {
    this.#budget = budget;
    this.#pool = pool;
    this.#now = now;
    this.#open = open;
    pool.enter(this.#node);
  }

  /** Bytes received that no reader has taken. */
  get held(): number {
    return this.#held;
  }

  /** The number of streams that the session has forgotten and that still hold bytes. */
  get unreadStreams(): number {
    return this.#unreadStreams.size;
  }

  /** Returns what counts for the stream from now on: the part that this account pays for. */
  charge(stream: Stream, account: MemoryAccount): StreamMemory {
    this.#parts ??= new Map();
    const part = this.#parts.get(account) ?? new AccountPart(account, this.#partOwner);
    this.#parts.set(account, part);
    part.add(stream);
    return part;
  }

  /** Others need the credit that the windows of this session have. */
  get mustShrink(): boolean {
    return this.#pool.mustShrink;
  }

  /** New streams begin with a small window. */
  get isTight(): boolean {
    return this.#held * 2 > this.#budget || this.#pool.isTight;
  }

  get #isSpent(): boolean {
    return this.#held > this.#budget;
  }

  /** The stream that holds most is reset, even if it moves. */
  get isOverrun(): boolean {
    return this.#held > 2 * this.#budget;
  }

  /** Bytes that are held have changed by `delta`. */
  hold(delta: number): void {
    this.#pool.hold(delta);
    this.#count(delta);
  }

  #count(delta: number): void {
    this.#held += delta;
    if (this.#isSpent) this.#reclaimSoon();
  }

  #reclaimSoon(): void {
    this.#timer ??= setTimeout(this.#reclaim, RECLAIM_MS).unref();
  }

  readonly #reclaim = (): void => {
    this.#timer = undefined;
    const now = this.#now();
    for (const part of this.#parts?.values() ?? []) {
      if (!part.isSpent) continue;
      const isEnough = () => part.held <= part.most * RECLAIM_TO;
      this.resets += reclaim(part.reclaimables(), isEnough, now, RECLAIM.stalled);
      if (part.isSpent) this.#reclaimSoon();
    }
    if (!this.#isSpent) return;
    const isEnough = () => this.#held <= this.#budget * RECLAIM_TO;
    this.resets += reclaim(this.#holders(), isEnough, now, RECLAIM.stalled);
    if (this.#isSpent) this.#reclaimSoon();
  };

  /** All streams that hold something, whoever pays. */
  *#holders(): Iterable<Stream> {
    for (const stream of this.#open) if (stream.held > 0) yield stream;
    yield* this.#unreadStreams;
  }

  /** Those that the pool pays for. */
  *reclaimables(): Iterable<Stream> {
    for (const stream of this.#holders()) if (stream.memory === this) yield stream;
  }

  /** Takes credit beyond an initial window from budget and pool. Returns false if there is none. */
  reserve(bytes: number): boolean {
    return this.#reserve(bytes, this.#pool);
  }

  #reserve(bytes: number, account: MemoryAccount): boolean {
    if (this.#isSpent || this.#reservedCredit + bytes > this.#budget || !account.reserve(bytes)) return false;
    this.#reservedCredit += bytes;
    return true;
  }

  /** That credit is free again. */
  giveBack(bytes: number): void {
    this.#reservedCredit -= bytes;
    this.#pool.release(bytes);
  }

  /** The stream is over on the wire: its credit is free, but not yet what it holds. */
  release(stream: Stream): void {
    stream.memory.giveBack(stream.reservedCredit);
    if (stream.unread > 0) this.#unreadStreams.add(stream);
  }

  /** The stream is destroyed and holds nothing. */
  forget(stream: Stream): void {
    this.#unreadStreams.delete(stream);
  }

  /** The session is over. Streams that were over before and are unread belong to their readers. */
  close(): void {
    clearTimeout(this.#timer);
    this.#node.leave();
    for (const part of this.#parts?.values() ?? []) part.close();
  }

  /** Resets the stream that holds most, among the open ones and those that are over. */
  resetLargest(): void {
    let largest: Stream | undefined;
    for (const stream of this.#holders()) if (stream.held > (largest?.held ?? 0)) largest = stream;
    if (largest === undefined) return;
    this.resets++;
    largest.evict();
  }

  get #partOwner(): PartOwner {
    const memory = this;
    return {
      get leftToHold() {
        return memory.#budget - memory.#held;
      },
      get leftToReserve() {
        return memory.#budget - memory.#reservedCredit;
      },
      count: (delta) => memory.#count(delta),
      reclaimSoon: () => memory.#reclaimSoon(),
      reserve: (bytes, account) => memory.#reserve(bytes, account),
      unreserve: (bytes) => {
        memory.#reservedCredit -= bytes;
      },
      forget: (stream) => memory.forget(stream),
      onEmpty: (account) => memory.#parts?.delete(account),
    };
  }
}
