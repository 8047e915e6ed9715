import type { MemoryAccount } from "../limits/memory-account.ts";
import { LateDataLimit, type SessionOptions } from "./bounds.ts";
import { YamuxError } from "./errors.ts";
import { ReceiveWindow } from "./flow-control.ts";
import { Flag, FrameType, SPEC_INITIAL_WINDOW } from "./frame.ts";
import type { Pings } from "./pings.ts";
import type { SendQueue } from "./send-queue.ts";
import { SessionMemory } from "./session-memory.ts";
import { Stream } from "./stream.ts";

/** The streams of one session: who may use which id, which windows they begin with, and what they share. */
export class StreamTable {
  /** Streams we opened that the peer has not acknowledged. */
  pendingOpens = 0;
  readonly queue: SendQueue;
  readonly memory: SessionMemory;
  readonly now: () => number;
  readonly bulkBytes: number;
  /** What may still come for streams that have ended here. */
  readonly lateData: LateDataLimit;
  readonly #options: SessionOptions;
  readonly #pings: Pings;
  readonly #onEmpty: () => void;
  readonly #streams = new StreamsById();
  readonly #ownIds: OwnStreamIds;
  readonly #peerIds: PeerStreamIds;

  /**
   * @param first our first id: 1 for a client, 2 for a server (spec, "Stream ID field")
   * @param onEmpty called when the last stream is over on the wire
   */
  constructor(first: 1 | 2, queue: SendQueue, pings: Pings, options: SessionOptions, onEmpty: () => void) {
    this.queue = queue;
    this.memory = new SessionMemory(options.budget, options.pool, options.now, this.#streams);
    this.now = options.now;
    this.bulkBytes = options.bulkBytes;
    this.lateData = new LateDataLimit(options.now);
    this.#options = options;
    this.#pings = pings;
    this.#onEmpty = onEmpty;
    this.#ownIds = new OwnStreamIds(first, options.maxStreamIds);
    this.#peerIds = new PeerStreamIds(first === 1 ? 2 : 1);
  }

  /** Milliseconds of one round trip; 0 while unknown. */
  get roundTripMs(): number {
    return this.#pings.refresh();
  }

  get size(): number {
    return this.#streams.size;
  }

  get isFull(): boolean {
    return this.#streams.size + this.memory.unreadStreams >= this.#options.maxStreams;
  }

  get idsExhausted(): boolean {
    return this.#ownIds.exhausted;
  }

  values(): Iterable<Stream> {
    return this.#streams;
  }

  /** The window that a sender counts on before the peer has announced a larger one. */
  get initialSendWindow(): number {
    return Math.min(this.#options.initialWindow, SPEC_INITIAL_WINDOW);
  }

  /** The rest of a new stream's receive window, which is announced with or behind SYN or ACK. */
  initialDelta(stream: Stream): number {
    return stream.receiveWindow.initialSize - this.initialSendWindow;
  }

  /** The ACK of a stream that the peer opened. */
  sendAck(stream: Stream): void {
    if (this.isOurs(stream)) return;
    this.queue.control(FrameType.windowUpdate, Flag.ack, stream.id, this.initialDelta(stream));
  }

  #firstReceiveWindow(account: MemoryAccount | undefined): number {
    const { initialWindow, freshWindow } = this.#options;
    return this.memory.isTight(account) ? initialWindow : Math.max(initialWindow, freshWindow);
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
    const { maxWindow, now } = this.#options;
    const receiveWindow = new ReceiveWindow(this.#firstReceiveWindow(account), maxWindow, now());
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
    this.queue.remove(stream);
    if (this.#streams.size === 0) this.#onEmpty();
  }

  /** The session is lost, and every stream with it. */
  lose(cause: Error | undefined): void {
    for (const stream of this.#streams) stream.onSessionLost(cause);
    this.#streams.clear();
    this.memory.close();
  }
}

/**
 * The open streams by id. The map has indices as its values and not the streams: an old map that was full of deleted
 * entries would keep those alive until the next full collection (docs/decisions/0018).
 */
export class StreamsById {
  readonly #indexOf = new Map<number, number>();
  readonly #slots: (Stream | undefined)[] = [];
  readonly #free: number[] = [];

  get size(): number {
    return this.#indexOf.size;
  }

  get(id: number): Stream | undefined {
    const index = this.#indexOf.get(id);
    return index === undefined ? undefined : this.#slots[index];
  }

  /** Adds a stream whose id no other stream has. */
  add(stream: Stream): void {
    const index = this.#free.pop() ?? this.#slots.length;
    this.#slots[index] = stream;
    this.#indexOf.set(stream.id, index);
  }

  /** Returns false if it was not here. */
  delete(stream: Stream): boolean {
    const index = this.#indexOf.get(stream.id);
    if (index === undefined || this.#slots[index] !== stream) return false;
    this.#indexOf.delete(stream.id);
    this.#slots[index] = undefined;
    this.#free.push(index);
    return true;
  }

  clear(): void {
    this.#indexOf.clear();
    this.#slots.length = 0;
    this.#free.length = 0;
  }

  *[Symbol.iterator](): IterableIterator<Stream> {
    for (const stream of this.#slots) if (stream !== undefined) yield stream;
  }
}

/** So many ids below the highest may still come: a peer with several threads may send its SYNs in another order. */
const MAX_SKIPPED = 1024;

/** The ids of streams that the peer has opened; they rise by two. */
export class PeerStreamIds {
  readonly #parity: number;
  #highest: number;
  readonly #skipped = new Set<number>();

  /** @param first the first id of that side: 1 for a client, 2 for a server */
  constructor(first: 1 | 2) {
    this.#parity = first % 2;
    this.#highest = first - 2;
  }

  /** Takes an id for a new stream. Returns a sentence if the peer may not use it. */
  use(id: number): string | undefined {
    if (id === 0) return "stream 0 is the session itself";
    if (id % 2 !== this.#parity) return `stream ${id} has the other side's parity`;
    if (id <= this.#highest) return this.#skipped.delete(id) ? undefined : `stream ${id} was used before`;
    const skipped = (id - this.#highest) / 2 - 1;
    if (this.#skipped.size + skipped > MAX_SKIPPED) return `stream ${id} skips too many ids`;
    for (let missing = this.#highest + 2; missing < id; missing += 2) this.#skipped.add(missing);
    this.#highest = id;
    return undefined;
  }

  /** Was `id` opened at some time? */
  has(id: number): boolean {
    return id > 0 && id <= this.#highest && id % 2 === this.#parity && !this.#skipped.has(id);
  }
}

/** The ids of streams that we open. */
export class OwnStreamIds {
  readonly #first: number;
  readonly #max: number;
  #taken = 0;

  /** @param max how many there are; the spec never uses one twice */
  constructor(first: 1 | 2, max: number) {
    this.#first = first;
    this.#max = max;
  }

  get exhausted(): boolean {
    return this.#taken >= this.#max;
  }

  take(): number {
    return this.#first + 2 * this.#taken++;
  }

  /** Is `id` one of this side's, used or not? */
  owns(id: number): boolean {
    return id > 0 && id % 2 === this.#first % 2;
  }

  /** Was `id` opened at some time? */
  has(id: number): boolean {
    return this.owns(id) && id < this.#first + 2 * this.#taken;
  }
}
