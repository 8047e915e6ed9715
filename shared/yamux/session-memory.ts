import { Queue, QueueNode } from "../basics/collections.ts";
import { type MemoryAccount, type MemoryHolder, PRESSURE } from "../limits/memory-account.ts";
import { RECLAIM, reclaim } from "../limits/reclaim.ts";
import type { StreamMemory } from "./flow-control.ts";
import type { Stream } from "./stream.ts";

/** Above its budget a session resets streams whose readers have stopped, in this interval, ms. */
const RECLAIM_MS = 50;
/** It does so until it holds less than this share of its budget. */
const RECLAIM_TO = 0.9;

/**
 * What the streams of one session hold, against the session's budget and the pool. Streams that another account pays
 * for are in a part of their own.
 */
export class SessionMemory implements MemoryHolder, StreamMemory {
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

  /** Returns what counts for the stream from now on: the part that this account pays for. Its node leaves with it. */
  charge(stream: QueueNode<Stream>, account: MemoryAccount): StreamMemory {
    this.#parts ??= new Map();
    const part = this.#parts.get(account) ?? new AccountPart(account, this);
    this.#parts.set(account, part);
    part.streams.join(stream);
    return part;
  }

  /** Others need the credit that the windows of this session have. */
  get mustShrink(): boolean {
    return this.#pool.mustShrink;
  }

  /** New streams begin with a small window. `payer`: the account of a stream that the pool does not pay for. */
  isTight(payer: MemoryAccount | undefined): boolean {
    if (this.#held * 2 > this.#budget || this.#pool.pressure >= PRESSURE.tight) return true;
    return payer !== undefined && payer.pressure >= PRESSURE.tight;
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
    this.count(delta);
  }

  readonly #reclaim = (): void => {
    this.#timer = undefined;
    const now = this.#now();
    for (const part of this.#parts?.values() ?? []) {
      if (!part.isSpent) continue;
      const isEnough = () => part.held <= part.most * RECLAIM_TO;
      this.resets += reclaim(part.reclaimables(), isEnough, now, RECLAIM.stalled);
      if (part.isSpent) this.reclaimSoon();
    }
    if (!this.#isSpent) return;
    const isEnough = () => this.#held <= this.#budget * RECLAIM_TO;
    this.resets += reclaim(this.#holders(), isEnough, now, RECLAIM.stalled);
    if (this.#isSpent) this.reclaimSoon();
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
    return this.reserveFrom(this.#pool, bytes);
  }

  /** That credit is free again. */
  giveBack(bytes: number): void {
    this.unreserve(bytes);
    this.#pool.release(bytes);
  }

  /** The stream is over on the wire: its credit is free, but not yet what it holds. */
  release(stream: Stream): void {
    stream.memory.giveBack(stream.receiveWindow.reserved);
    if (stream.held > 0) this.#unreadStreams.add(stream);
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

  // ── for its parts ──────────────────────────────────────────────────────────────────────────────────────────────

  /** What the session's budget leaves for more held bytes. */
  get leftToHold(): number {
    return this.#budget - this.#held;
  }

  /** What it leaves for more credit. */
  get leftToReserve(): number {
    return this.#budget - this.#reservedCredit;
  }

  /** The bytes that the session holds, whoever pays, have changed by `delta`. */
  count(delta: number): void {
    this.#held += delta;
    if (this.#isSpent) this.reclaimSoon();
  }

  reclaimSoon(): void {
    this.#timer ??= setTimeout(this.#reclaim, RECLAIM_MS).unref();
  }

  reserveFrom(account: MemoryAccount, bytes: number): boolean {
    if (this.#isSpent || bytes > this.leftToReserve || !account.reserve(bytes)) return false;
    this.#reservedCredit += bytes;
    return true;
  }

  unreserve(bytes: number): void {
    this.#reservedCredit -= bytes;
  }

  /** No stream is charged to the account any more. */
  removePart(account: MemoryAccount): void {
    this.#parts?.delete(account);
  }
}

/**
 * The streams of a session that one account pays for, where several share the session: a link between two servers
 * carries streams of many clusters. The part takes no more of the session's budget than it leaves to others: alone half
 * of it, one of two a third.
 */
class AccountPart implements MemoryHolder, StreamMemory {
  readonly streams = new Queue<Stream>();
  readonly #account: MemoryAccount;
  readonly #session: SessionMemory;
  readonly #node = new QueueNode<MemoryHolder>(this);
  #held = 0;
  #reserved = 0;

  constructor(account: MemoryAccount, session: SessionMemory) {
    this.#account = account;
    this.#session = session;
    account.enter(this.#node);
  }

  /** Bytes received that no reader has taken. */
  get held(): number {
    return this.#held;
  }

  /** What it may hold of the session's budget. */
  get most(): number {
    return (this.#session.leftToHold + this.#held) / 2;
  }

  get isSpent(): boolean {
    return this.#held > this.#session.leftToHold;
  }

  get mustShrink(): boolean {
    return this.#account.mustShrink;
  }

  hold(delta: number): void {
    this.#held += delta;
    this.#account.hold(delta);
    this.#session.count(delta);
    if (this.isSpent) this.#session.reclaimSoon();
  }

  reserve(bytes: number): boolean {
    if (this.isSpent || this.#reserved + bytes > this.#session.leftToReserve - bytes) return false;
    if (!this.#session.reserveFrom(this.#account, bytes)) return false;
    this.#reserved += bytes;
    return true;
  }

  giveBack(bytes: number): void {
    this.#reserved -= bytes;
    this.#session.unreserve(bytes);
    this.#account.release(bytes);
  }

  forget(stream: Stream): void {
    this.#session.forget(stream);
    if (this.streams.size > 0) return;
    this.close();
    this.#session.removePart(this.#account);
  }

  *reclaimables(): Iterable<Stream> {
    for (const stream of this.streams) if (stream.held > 0) yield stream;
  }

  /** The session is over. */
  close(): void {
    this.#node.leave();
  }
}
