import { YamuxError } from "./errors.ts";
import { SPEC_INITIAL_WINDOW } from "./frame.ts";
import { Memory } from "./memory.ts";
import type { SessionOptions } from "./options.ts";
import { Stream, type StreamWire } from "./stream.ts";
import { OwnStreamIds, PeerStreamIds } from "./stream-ids.ts";
import { StreamsById } from "./streams-by-id.ts";

/** The streams of one session: who owns which id, which windows they begin with, and what they hold together. */
export class StreamTable {
  readonly memory: Memory;
  readonly #options: SessionOptions;
  readonly #streams = new StreamsById();
  readonly #ownIds: OwnStreamIds;
  readonly #peerIds: PeerStreamIds;
  #pendingOpens = 0;

  /** @param first our first id: 1 for a client, 2 for a server (spec, "Stream ID field"). */
  constructor(first: 1 | 2, options: SessionOptions) {
    this.#options = options;
    this.memory = new Memory(options.budget, options.pool, options.now, this.#streams);
    this.#ownIds = new OwnStreamIds(first, options.maxStreamIds);
    this.#peerIds = new PeerStreamIds(first === 1 ? 2 : 1);
  }

  get size(): number {
    return this.#streams.size;
  }

  /** Streams we opened that the peer has not acknowledged. */
  get pendingOpens(): number {
    return this.#pendingOpens;
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

  /** A window beyond the spec's is not counted on until the peer says it. */
  get sendWindowAtFirst(): number {
    return Math.min(this.#options.initialWindow, SPEC_INITIAL_WINDOW);
  }

  /** What the peer does not count on: it comes as a delta with or behind SYN or ACK. */
  deltaAtFirst(stream: Stream): number {
    return stream.firstWindow - this.sendWindowAtFirst;
  }

  get #receiveWindowAtFirst(): number {
    const { initialWindow, freshWindow } = this.#options;
    return this.memory.isTight ? initialWindow : Math.max(initialWindow, freshWindow);
  }

  /** A stream of ours, which has sent `alreadySent` bytes with its SYN. */
  open(wire: StreamWire, alreadySent: number): Stream {
    this.#pendingOpens++;
    return this.#add(this.#ownIds.take(), wire, this.sendWindowAtFirst - alreadySent);
  }

  /** A stream of the peer's; `undefined`: refused, though its id is used up. Throws when the peer may not use the id. */
  accept(id: number, wire: StreamWire, welcome: boolean): Stream | undefined {
    const violation = this.#peerIds.use(id);
    if (violation !== undefined) throw new YamuxError("protocol", violation);
    return welcome ? this.#add(id, wire, this.sendWindowAtFirst) : undefined;
  }

  #add(id: number, wire: StreamWire, sendWindow: number): Stream {
    const stream = new Stream(id, wire, {
      send: sendWindow,
      receive: this.#receiveWindowAtFirst,
      maxReceive: this.#options.maxWindow,
    });
    this.#streams.add(stream);
    return stream;
  }

  isOurs(stream: Stream): boolean {
    return this.#ownIds.owns(stream.id);
  }

  /** The stream that a frame names; `undefined`: it has ended here. Throws when there never was one. */
  get(id: number): Stream | undefined {
    const stream = this.#streams.get(id);
    if (stream !== undefined || this.#ownIds.has(id) || this.#peerIds.has(id)) return stream;
    throw new YamuxError("protocol", `a frame for stream ${id}, which was never opened`);
  }

  acknowledge(stream: Stream): void {
    if (stream.acknowledged || !this.isOurs(stream)) return;
    this.#pendingOpens--;
    stream.onAck();
  }

  /** The stream is over on the wire. False: it was forgotten before. */
  release(stream: Stream): boolean {
    if (!this.#streams.delete(stream)) return false;
    this.memory.release(stream);
    if (!stream.acknowledged && this.isOurs(stream)) this.#pendingOpens--;
    return true;
  }

  /** The session is lost, and every stream with it. */
  lose(cause: Error | undefined): void {
    for (const stream of this.#streams) stream.onSessionLost(cause);
    this.#streams.clear();
    this.memory.close();
  }
}
