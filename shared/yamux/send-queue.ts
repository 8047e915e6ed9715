import { Queue, type QueueNode } from "../basics/collections.ts";
import type { SessionOptions } from "./bounds.ts";
import { Flag, FrameType, HEADER_LENGTH, header, MAX_UINT32 } from "./frame.ts";
import type { Transport } from "./transport.ts";

/** A stream as the queue uses it. */
export interface SendingStream {
  readonly id: number;
  /** Its node among those that have something to send. */
  readonly turn: QueueNode<SendingStream>;
  /** Something waits, and the window allows a part of it. */
  readonly sendable: boolean;
  /** Bytes that the writer has given and that were not sent. */
  readonly writableLength: number;
  /** Moves up to `limit` bytes of payload into `batch`. Returns how many. `completeWrite` has to follow. */
  takePayload(limit: number, batch: Buffer[]): number;
  /** Calls the writer back. Returns true if a tail waits for more. */
  completeWrite(taken: number): boolean;
}

/** At least this many bytes of a stream are worth a system call of their own; fewer are gathered. */
const FLUSH_AT_ONCE = 16 * 1024;
/**
 * Control frames are sent before the turn ends when they have this many bytes: thousands of streams may be opened in
 * one turn.
 */
const FLUSH_CONTROL_AT = 64 * 1024;
/**
 * Small frames are gathered while each turn of the event loop brings more of them, until the end of the turn in which
 * this time, ms, has passed; not at all if the last measured turn took as long (docs/decisions/0016).
 */
const GATHER_MS = 0.5;
/** With less room on the path, a stream's turn is half a frame while others wait for theirs (docs/decisions/0017). */
const AMPLE_ROOM = 512 * 1024;
/** A shorter frame is not worth its header, even if the path has less room (RFC 1122 §4.2.3.4: silly window). */
const LEAST_FRAME = 4 * 1024;
/**
 * Data waits while more than this share of `maxPending` is pending. A batch that fills a small rest is a small write,
 * and leaves a small rest for the next one (docs/decisions/0017).
 */
const DATA_BELOW = 3 / 4;
/** When this many buffers of control frames wait, they become one: a peer may never read them, and each costs 150 B. */
const PACKED = 1_024;
const EMPTY = Buffer.alloc(0);

/**
 * Everything a session sends, in the order in which it goes: control frames first, then streams in turn, one frame
 * each. Bytes that the transport has not taken stay under `maxPending` and one frame, so that a control frame never
 * waits for more.
 */
export class SendQueue {
  readonly #transport: Transport;
  readonly #options: SessionOptions;
  /** Streams that have something to send and may, in the order of their turns. */
  readonly #ready = new Queue<SendingStream>();
  readonly #tails: TailCoalescer;
  #control: Buffer[] = [];
  #controlBytes = 0;
  /** Buffers at the beginning of `#control` that have `PACKED` others in them. */
  #packed = 0;
  #flushing = false;
  /** Small frames are being gathered; `#onTurnEnd` sends them, in this turn of the event loop or a later one. */
  #gathering = false;
  /** Control frames and streams that were waiting at the end of the previous turn. */
  #gathered = 0;
  #gatheringSince = 0;
  /** The last turn that was measured was a long one, so nothing waits for another. */
  #isLoopBusy = false;
  #turnBegan = 0;
  /** In the last batch with data only one stream had some, so its next write is sent at once. */
  #singleWriter = false;
  /** A stream's data has been sent since the gathering began. */
  #sentAtOnce = false;
  /** The last flush ended because the transport was full. */
  #blocked = false;
  #stopped = false;

  constructor(transport: Transport, options: SessionOptions) {
    this.#transport = transport;
    this.#options = options;
    this.#tails = new TailCoalescer((stream) => this.ready(stream));
  }

  /** Bytes of control frames that wait; they pile up only when the transport takes nothing. */
  get controlBytes(): number {
    return this.#controlBytes;
  }

  /** The number of those frames, which bounds answers: their bytes have the first payload of our streams, too. */
  get controlFrames(): number {
    return this.#control.length + this.#packed * (PACKED - 1);
  }

  /** Sends a frame before all data. `payload` belongs to it and is small. */
  control(type: FrameType, flags: number, streamId: number, length: number, payload?: Buffer): void {
    if (this.#stopped) return;
    this.#add(header(type, flags, streamId, length));
    if (payload !== undefined) this.#add(payload);
    if (this.#controlBytes >= FLUSH_CONTROL_AT) this.flush();
    else this.#gather();
  }

  #add(buffer: Buffer): void {
    this.#control.push(buffer);
    this.#controlBytes += buffer.length;
    if (this.#control.length - this.#packed < PACKED) return;
    this.#control.push(Buffer.concat(this.#control.splice(this.#packed)));
    this.#packed++;
  }

  #takeControl(): Buffer[] {
    const taken = this.#control;
    this.#control = [];
    this.#controlBytes = 0;
    this.#packed = 0;
    return taken;
  }

  /** Gives `stream` turns as long as it has something to send and may. */
  ready(stream: SendingStream): void {
    if (this.#stopped || !stream.sendable) return;
    this.#ready.join(stream.turn);
    if (stream.writableLength >= FLUSH_AT_ONCE) this.flush();
    else if (this.#singleWriter && !this.#gathering) this.#sendAtOnce();
    else this.#gather();
  }

  #sendAtOnce(): void {
    this.#gather(); // what follows in this turn
    this.#sentAtOnce = true;
    this.flush();
  }

  /** Sends the control frames that wait even if the transport is full, and nothing more after them. */
  end(): void {
    if (this.#stopped) return;
    this.flush();
    if (this.#controlBytes > 0) this.#transport.write(this.#control, this.#controlBytes);
    this.stop();
  }

  /** Drops what waits; nothing more is sent. */
  stop(): void {
    this.#stopped = true;
    this.#ready.clear();
    this.#tails.stop();
    this.#takeControl();
  }

  /** The transport has room again: a flush that was stopped by it continues. */
  onWritable(): void {
    if (this.#blocked) this.flush();
  }

  /** Sends as much as the transport has room for. Writers that are called back may write again while this runs. */
  flush(): void {
    if (this.#flushing) return;
    this.#flushing = true;
    const { maxPending } = this.#options;
    while (!this.#stopped) {
      const pathRoom = this.#transport.room();
      const { pendingBytes } = this.#transport;
      const room = Math.min(maxPending - pendingBytes, pathRoom);
      const isDataDue = room > 0 && pendingBytes <= maxPending * DATA_BELOW;
      this.#blocked = room <= 0 || (!isDataDue && this.#ready.size > 0);
      if (room <= 0) break;
      const controlBytes = this.#controlBytes;
      const batch = this.#takeControl();
      const bytes = isDataDue ? this.#takeTurns(batch, controlBytes, room, pathRoom) : controlBytes;
      if (bytes === 0 || this.#stopped) break;
      this.#transport.write(batch, bytes);
    }
    this.#flushing = false;
  }

  /** Adds data frames to a batch that has `before` bytes of control frames. Returns how many bytes it has then. */
  #takeTurns(batch: Buffer[], before: number, room: number, pathRoom: number): number {
    let bytes = before;
    while (bytes < room && this.#ready.first !== undefined) {
      const stream = this.#ready.first.member;
      this.#ready.leave(stream.turn);
      const at = batch.push(EMPTY) - 1;
      const length = stream.takePayload(this.#frameLimit(bytes, pathRoom), batch);
      batch[at] = header(FrameType.data, Flag.none, stream.id, length);
      bytes += HEADER_LENGTH + length;
      if (stream.completeWrite(length)) this.#tails.keep(stream);
      else if (stream.sendable) this.#ready.join(stream.turn); // after the others
    }
    return bytes;
  }

  /** The longest payload of a frame after `before` bytes: what the path has room for, in whole records if it can. */
  #frameLimit(before: number, pathRoom: number): number {
    const left = pathRoom - before;
    const parts = left < AMPLE_ROOM && this.#ready.size > 0 ? 2 : 1;
    const most = Math.min(Math.ceil(this.#options.maxFramePayload / parts), Math.max(left, LEAST_FRAME));
    const whole = this.#transport.wholeRecords(before + HEADER_LENGTH, most);
    return whole < LEAST_FRAME ? most : whole;
  }

  #gather(): void {
    if (this.#gathering || this.#flushing) return;
    this.#gathering = true;
    this.#gatheringSince = this.#options.now();
    setImmediate(this.#onTurnEnd);
  }

  readonly #onTurnEnd = (): void => {
    if (this.#isMoreExpected()) {
      this.#measureTurn(this.#onNextTurnEnd);
      return;
    }
    this.#gathering = false;
    this.#gathered = 0;
    const writers = this.#ready.size + (this.#sentAtOnce ? 1 : 0);
    if (writers > 0) this.#singleWriter = writers === 1 && this.#control.length === 0;
    this.#sentAtOnce = false;
    this.flush();
    if (this.#isLoopBusy) this.#measureTurn(this.#onTurnMeasured);
  };

  /** This turn has brought something, so the next may as well. */
  #isMoreExpected(): boolean {
    const before = this.#gathered;
    this.#gathered = this.#ready.size + this.controlFrames;
    return this.#gathered > before && !this.#isLoopBusy && this.#options.now() - this.#gatheringSince < GATHER_MS;
  }

  #measureTurn(then: () => void): void {
    this.#turnBegan = this.#options.now();
    setImmediate(then);
  }

  readonly #onTurnMeasured = (): void => {
    this.#isLoopBusy = this.#options.now() - this.#turnBegan >= GATHER_MS;
  };

  readonly #onNextTurnEnd = (): void => {
    this.#onTurnMeasured();
    this.#onTurnEnd();
  };
}

/** A tail waits for one to two of these, ms; timers are late besides. */
const TAIL_PERIOD_MS = 1;

/**
 * Streams in the middle of a bulk transfer whose last large write has left a few bytes. More is likely to follow, and
 * then they go with it; alone they would cost both ends a frame and a TLS record (docs/decisions/0017).
 */
class TailCoalescer {
  readonly #onDue: (stream: SendingStream) => void;
  #young = new Set<SendingStream>();
  #old = new Set<SendingStream>();
  #timer: NodeJS.Timeout | undefined;

  /** @param onDue called with a stream that has waited long enough, even if it has no tail any more */
  constructor(onDue: (stream: SendingStream) => void) {
    this.#onDue = onDue;
  }

  keep(stream: SendingStream): void {
    this.#old.delete(stream);
    this.#young.add(stream);
    this.#timer ??= setTimeout(this.#onPeriod, TAIL_PERIOD_MS).unref();
  }

  stop(): void {
    clearTimeout(this.#timer);
    this.#old.clear();
    this.#young.clear();
  }

  readonly #onPeriod = (): void => {
    const waited = this.#old;
    this.#old = this.#young;
    this.#young = new Set();
    this.#timer = this.#old.size > 0 ? setTimeout(this.#onPeriod, TAIL_PERIOD_MS).unref() : undefined;
    for (const stream of waited) this.#onDue(stream);
  };
}

const NOTHING: readonly Buffer[] = [];
/** Maximum length of a tail, bytes, behind a frame that was worth a system call of its own. */
const MOST_TAIL = 1024;

/** Bytes that a stream has to send, and how many of them the peer's window allows. */
export class SendBuffer {
  /** Bytes that wait. */
  length = 0;
  #window: number;
  #chunks: readonly Buffer[] = NOTHING;
  /** Where the next byte is. */
  #index = 0;
  #offset = 0;

  /** @param window bytes that the peer takes before it gives credit */
  constructor(window: number) {
    this.#window = window;
  }

  /** Something waits, and the window allows a part of it. */
  get isSendable(): boolean {
    return this.length > 0 && this.#window > 0;
  }

  /** Whether a short rest, which the window allows, waits behind a frame of `sent` bytes. */
  isTail(sent: number): boolean {
    return sent >= FLUSH_AT_ONCE && this.length <= Math.min(MOST_TAIL, this.#window);
  }

  add(chunks: readonly Buffer[], byteLength: number): void {
    this.#chunks = this.length === 0 ? chunks : [...this.#rest(), ...chunks];
    this.length += byteLength;
    this.#index = 0;
    this.#offset = 0;
  }

  #rest(): readonly Buffer[] {
    const [first, ...others] = this.#chunks.slice(this.#index);
    return first === undefined ? NOTHING : [first.subarray(this.#offset), ...others];
  }

  /** Moves up to `limit` bytes into `batch`, as far as the window allows. Returns their number. */
  take(limit: number, batch: Buffer[]): number {
    const room = Math.min(limit, this.#window);
    let taken = 0;
    while (taken < room) {
      const chunk = this.#chunks[this.#index];
      if (chunk === undefined) break;
      const start = this.#offset;
      const end = Math.min(chunk.length, start + room - taken);
      batch.push(start === 0 && end === chunk.length ? chunk : chunk.subarray(start, end));
      taken += end - start;
      this.#offset = end;
      if (end === chunk.length) {
        this.#index++;
        this.#offset = 0;
      }
    }
    this.#window -= taken;
    this.length -= taken;
    if (this.length === 0) this.#chunks = NOTHING;
    return taken;
  }

  /**
   * The peer gives `delta` bytes of credit. Returns false if the window would pass a uint32, which no honest peer
   * does.
   */
  grant(delta: number): boolean {
    if (this.#window + delta > MAX_UINT32) return false;
    this.#window += delta;
    return true;
  }

  clear(): void {
    this.#chunks = NOTHING;
    this.length = 0;
  }
}
