import { ById } from "../basics/collections.ts";
import type { MemoryAccount } from "../limits/memory-account.ts";
import { LateDataLimit, OwnStreamIds, PeerStreamIds, type SessionOptions } from "./bounds.ts";
import { sessionLost, YamuxError } from "./errors.ts";
import { type Pings, ReceiveWindow } from "./flow-control.ts";
import { Flag, FrameType, SPEC_INITIAL_WINDOW } from "./frame.ts";
import type { SendQueue } from "./send-queue.ts";
import { SessionMemory } from "./session-memory.ts";
import { Stream, type StreamOwner } from "./stream.ts";

/** The streams of one session: who may use which id, which windows they begin with, and what they share. */
export class StreamTable implements StreamOwner {
  pendingOpens = 0;
  readonly queue: SendQueue;
  readonly memory: SessionMemory;
  readonly options: SessionOptions;
  readonly pings: Pings;
  /** The bound on data that may still come for streams that have ended here. */
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
    const size = this.memory.isShort(account) ? initialWindow : Math.max(initialWindow, freshWindow);
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
    stream.memory.giveBack(stream.receiveWindow.reserved); // but not yet what it holds
    this.memory.onOver(stream);
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
