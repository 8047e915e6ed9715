import { ById, QueueNode } from "../basics/collections.ts";
import { type MemoryAccount, type MemoryHolder, PRESSURE } from "../limits/memory-account.ts";
import { RECLAIM, RECLAIM_TO, reclaim } from "../limits/reclaim.ts";
import { AccountPart, type SessionBudget } from "./account-part.ts";
import { LateDataLimit, OwnStreamIds, PeerStreamIds, type SessionOptions } from "./bounds.ts";
import { sessionLost, YamuxError } from "./errors.ts";
import { type CountedStream, type Pings, ReceiveWindow, type StreamMemory } from "./flow-control.ts";
import { Flag, FrameType, SPEC_INITIAL_WINDOW } from "./frame.ts";
import type { SendQueue } from "./send-queue.ts";
import { Stream, type StreamOwner } from "./stream.ts";

/** The streams of one session: who may use which id, which windows they begin with, and what they share. */
export class StreamTable implements StreamOwner {
  pendingOpens = 0;
  readonly queue: SendQueue;
  readonly memory: SessionMemory;
  readonly options: SessionOptions;
  readonly pings: Pings;
  /** What may still come for streams that have ended here. */
  readonly lateData: LateDataLimit;
  readonly #onEmpty: () => void;
  readonly #streams = new ById<Stream>();
  readonly #ownIds: OwnStreamIds;
  readonly #peerIds: PeerStreamIds;

  /**
   * @param first our first id: 1 for a client, 2 for a server (spec, "Stream ID field")
   * @param onEmpty called when the last stream is over on the wire
   */
  constructor(first: 1 | 2, queue: SendQueue, pings: Pings, options: SessionOptions, onEmpty: () => void) {
    this.queue = queue;
    this.memory = new SessionMemory(options.budget, options.pool, options.now, this.#streams);
    this.lateData = new LateDataLimit(options.now);
    this.options = options;
    this.pings = pings;
    this.#onEmpty = onEmpty;
    this.#ownIds = new OwnStreamIds(first, options.maxStreamIds);
    this.#peerIds = new PeerStreamIds(first === 1 ? 2 : 1);
  }

  get size(): number {
    return this.#streams.size;
  }

  get isFull(): boolean {
    return this.#streams.size + this.memory.unreadStreams >= this.options.maxStreams;
  }

  get idsExhausted(): boolean {
    return this.#ownIds.exhausted;
  }

  values(): Iterable<Stream> {
    return this.#streams;
  }

  /** The window that a sender counts on before the peer has announced a larger one. */
  get initialSendWindow(): number {
    return Math.min(this.options.initialWindow, SPEC_INITIAL_WINDOW);
  }

  /** The rest of a new stream's receive window, which is announced with or after SYN or ACK. */
  initialDelta(stream: Stream): number {
    return stream.receiveWindow.initialSize - this.initialSendWindow;
  }

  /** The ACK of a stream that the peer opened. */
  sendAck(stream: Stream): void {
    if (this.isOurs(stream)) return;
    this.queue.control(FrameType.windowUpdate, Flag.ack, stream.id, this.initialDelta(stream));
  }

  /** Makes a stream of ours, whose SYN carries `alreadySent` bytes, and which `account` pays for, or else the pool. */
  open(alreadySent: number, account: MemoryAccount | undefined): Stream {
    this.pendingOpens++;
    const stream = this.#add(this.#ownIds.take(), this.initialSendWindow - alreadySent, account);
    if (account !== undefined) stream.chargeTo(account);
    return stream;
  }

  /**
   * Makes a stream that the peer opens, or returns `undefined` if it is not `welcome`; its id is used up in both cases.
   * Throws if the peer may not use the id.
   */
  accept(id: number, welcome: boolean): Stream | undefined {
    const violation = this.#peerIds.use(id);
    if (violation !== undefined) throw new YamuxError("protocol", violation);
    return welcome ? this.#add(id, this.initialSendWindow) : undefined;
  }

  #add(id: number, sendWindow: number, account?: MemoryAccount): Stream {
    const { initialWindow, freshWindow, maxWindow, now } = this.options;
    const size = this.memory.isTight(account) ? initialWindow : Math.max(initialWindow, freshWindow);
    const receiveWindow = new ReceiveWindow(size, maxWindow, now());
    const stream = new Stream(id, this, sendWindow, receiveWindow);
    this.#streams.add(stream);
    return stream;
  }

  isOurs(stream: Stream): boolean {
    return this.#ownIds.owns(stream.id);
  }

  /** The stream that a frame names, or `undefined` if it has ended here. Throws if there never was one. */
  get(id: number): Stream | undefined {
    const stream = this.#streams.get(id);
    if (stream !== undefined || this.#ownIds.has(id) || this.#peerIds.has(id)) return stream;
    throw new YamuxError("protocol", `a frame for stream ${id}, which was never opened`);
  }

  acknowledge(stream: Stream): void {
    if (stream.acknowledged || !this.isOurs(stream)) return;
    this.pendingOpens--;
    stream.onAck();
  }

  /** Both directions are over, or the stream was reset: the id can be forgotten. */
  release(stream: Stream): void {
    if (!this.#streams.delete(stream)) return;
    this.memory.release(stream);
    if (!stream.acknowledged && this.isOurs(stream)) this.pendingOpens--;
    this.lateData.allow(stream.allowance);
    stream.turn.leave();
    if (this.#streams.size === 0) this.#onEmpty();
  }

  /** The session is lost, and every stream with it. */
  lose(cause: Error | undefined): void {
    for (const stream of this.#streams) stream.onOver(sessionLost(cause));
    this.#streams.clear();
    this.memory.close();
  }
}

/** Above its budget a session resets streams whose readers have stopped, in this interval, ms. */
const RECLAIM_MS = 50;

/**
 * What the streams of one session hold, against the session's budget and the pool. Streams that another account pays
 * for are in a part of their own.
 */
export class SessionMemory implements MemoryHolder, StreamMemory, SessionBudget {
  resets = 0;
  readonly #budget: number;
  readonly #pool: MemoryAccount;
  readonly #now: () => number;
  readonly #open: Iterable<CountedStream>;
  /** Streams that are over on the wire, with bytes that no reader has taken yet. */
  readonly #unreadStreams = new Set<CountedStream>();
  readonly #node = new QueueNode<MemoryHolder>(this);
  /** What other accounts than the pool pay for. */
  #parts: Map<MemoryAccount, AccountPart> | undefined;
  #reservedCredit = 0;
  #held = 0;
  #timer: NodeJS.Timeout | undefined;

  /** @param open the streams of the session that are not over */
  constructor(budget: number, pool: MemoryAccount, now: () => number, open: Iterable<CountedStream>) {
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
  charge(stream: QueueNode<CountedStream>, account: MemoryAccount): StreamMemory {
    this.#parts ??= new Map();
    const part = this.#parts.get(account) ?? new AccountPart(account, this);
    this.#parts.set(account, part);
    part.streams.join(stream);
    return part;
  }

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

  hold(delta: number): void {
    this.#pool.hold(delta);
    this.count(delta);
  }

  readonly #reclaim = (): void => {
    this.#timer = undefined;
    for (const part of this.#parts?.values() ?? []) {
      if (!part.isSpent) continue;
      this.#resetStalled(part.reclaimables(), () => part.held <= part.most * RECLAIM_TO);
      if (part.isSpent) this.reclaimSoon();
    }
    if (!this.#isSpent) return;
    this.#resetStalled(this.#holders(), () => this.#held <= this.#budget * RECLAIM_TO);
    if (this.#isSpent) this.reclaimSoon();
  };

  #resetStalled(streams: Iterable<CountedStream>, isEnough: () => boolean): void {
    this.resets += reclaim(streams, isEnough, this.#now(), RECLAIM.stalled);
  }

  /** All streams that hold something, whoever pays. */
  *#holders(): Iterable<CountedStream> {
    for (const stream of this.#open) if (stream.held > 0) yield stream;
    yield* this.#unreadStreams;
  }

  /** Streams that the pool pays for. */
  *reclaimables(): Iterable<CountedStream> {
    for (const stream of this.#holders()) if (stream.memory === this) yield stream;
  }

  reserve(bytes: number): boolean {
    return this.reserveFrom(this.#pool, bytes);
  }

  giveBack(bytes: number): void {
    this.giveBackTo(this.#pool, bytes);
  }

  /** The stream is over on the wire: its credit is free, but not yet what it holds. */
  release(stream: Stream): void {
    stream.memory.giveBack(stream.receiveWindow.reserved);
    if (stream.held > 0) this.#unreadStreams.add(stream);
  }

  forget(stream: CountedStream): void {
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
    let largest: CountedStream | undefined;
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

  giveBackTo(account: MemoryAccount, bytes: number): void {
    this.#reservedCredit -= bytes;
    account.release(bytes);
  }

  /** No stream is charged to the account any more. */
  removePart(account: MemoryAccount): void {
    this.#parts?.delete(account);
  }
}
