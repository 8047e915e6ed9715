import { Duplex } from "node:stream";
import { ByteQueue, compact } from "../basics/bytes.ts";
import { QueueNode } from "../basics/queue.ts";
import { DESTROYED, memoryNeeded } from "../limits/memory-account.ts";
import { ProgressTracker } from "../limits/reclaim.ts";
import { sessionLost, streamReset } from "./errors.ts";
import { type CreditBudget, ReceiveWindow, SendWindow } from "./window.ts";

type Done = (error?: Error | null) => void;

/** What a stream asks of its session. */
export interface StreamWire extends CreditBudget {
  /** The stream has bytes and window: give it turns until `takePayload` has taken all it can. */
  ready(stream: Stream): void;
  /** The ACK of a stream that the peer opened. */
  sendAck(stream: Stream): void;
  /** `unhurried`: it may wait for something to go with. */
  sendCredit(stream: Stream, delta: number, unhurried: boolean): void;
  sendFin(stream: Stream): void;
  sendReset(stream: Stream): void;
  /** Both directions are over, or the stream was reset: forget the id. */
  release(stream: Stream): void;
  /** The Duplex is destroyed: it holds no bytes any more. */
  destroyed(stream: Stream): void;
  /** What the stream holds, bytes, has changed by `delta`. */
  hold(delta: number): void;
  readonly now: () => number;
  /** So many bytes have gone one way before a remnant waits. */
  readonly bulkBytes: number;
}

export interface StreamWindows {
  readonly send: number;
  readonly receive: number;
  readonly maxReceive: number;
}

/** Bytes a writer may hand over before `write` says stop. The reader's side is bounded by the window instead. */
const WRITE_HIGH_WATER_MARK = 64 * 1024;
/** Up to so many bytes that are left behind a frame of at least one record wait for the next write. */
const MOST_REMNANT = 1024;
const BEFORE_REMNANT = 16 * 1024;
const NOTHING: readonly Buffer[] = [];

/**
 * One yamux stream as a Duplex: `_write` keeps its callback until the peer's window allows (that is the whole of our
 * backpressure), reading gives credit, `end()` is FIN, `destroy()` is RST unless both directions have ended.
 *
 * ```
 *            end()                        peer's FIN
 *  open ───────────▶ write side ended ───────────────▶ closed, forgotten
 *   │  peer's FIN                    end()               ▲
 *   ├───────────▶ read side ended ───────────────────────┤
 *   └── destroy() or peer's RST or session lost ─────────┘
 * ```
 */
export class Stream extends Duplex {
  readonly id: number;
  /** Among those that have something to send. */
  readonly turn = new QueueNode<Stream>(this);
  /** Called once, when the peer's ACK arrives. */
  onAcknowledged: (() => void) | undefined;
  readonly #wire: StreamWire;
  readonly #sendWindow: SendWindow;
  readonly #receiveWindow: ReceiveWindow;
  #acknowledged = false;
  #ackSent = false;
  #localEnded = false;
  #remoteEnded = false;
  #released = false;
  /** Bytes received and not yet taken by the reader: one piece in the Duplex's own buffer, the rest in `#backlog`. */
  #unread = 0;
  readonly #backlog = new ByteQueue();
  /** `_read` was called and not answered: nobody calls it again before a `push`. */
  #isAsked = false;
  /** When the reader took something of what is unread; made when bytes are left unread for the first time. */
  #progress: ProgressTracker | undefined;
  /** Something has been left unread: what is taken of it counts as a movement. */
  #stands = false;
  /** Bytes among them that the reader had taken and put back: their credit has been given already. */
  #returned = 0;
  #outgoing: readonly Buffer[] = NOTHING;
  #outgoingIndex = 0;
  #outgoingOffset = 0;
  /** Bytes of `#outgoing` that have not been taken. */
  #outgoingLeft = 0;
  #outgoingDone: Done | undefined;
  /** Bytes sent since any came back. */
  #oneWay = 0;
  /** The writer has ended; FIN goes when all is taken. */
  #finalDone: Done | undefined;

  constructor(id: number, wire: StreamWire, windows: StreamWindows) {
    // Node's own buffer keeps pieces as they come, and many small ones cost much more than their bytes.
    super({ readableHighWaterMark: 0, writableHighWaterMark: WRITE_HIGH_WATER_MARK, decodeStrings: true });
    this.id = id;
    this.#wire = wire;
    this.#sendWindow = new SendWindow(windows.send);
    this.#receiveWindow = new ReceiveWindow(windows.receive, windows.maxReceive, wire.now());
  }

  /** The peer has taken the stream on (its ACK has arrived). */
  get acknowledged(): boolean {
    return this.#acknowledged;
  }

  /** Bytes received and not yet taken by the reader. */
  get unread(): number {
    return this.#unread;
  }

  /** What a reset frees, bytes. */
  get held(): number {
    return this.#unread;
  }

  /** Since when nothing of that has been taken, ms on the session's clock. */
  get lastProgressAt(): number {
    return this.#progress?.lastProgressAt ?? 0;
  }

  get longestPauseMs(): number {
    return this.#progress?.longestPauseMs ?? 0;
  }

  /** What the peer may have under way. */
  get allowance(): number {
    return this.#remoteEnded ? 0 : this.#receiveWindow.allowance;
  }

  /** What the peer might send before the reader took any, bytes. */
  get firstWindow(): number {
    return this.#receiveWindow.initialSize;
  }

  /** Window beyond the initial one, taken from the session's budget. */
  get reservedCredit(): number {
    return this.#receiveWindow.reserved;
  }

  /** Says ACK now, for a peer that waits for it; without this it goes before the first bytes, credit or FIN. */
  accept(): void {
    if (this.#ackSent || this.#released) return;
    this.#ackSent = true;
    this.#wire.sendAck(this);
  }

  /** Ends the stream with RST on the wire. */
  reset(reason?: Error): void {
    this.destroy(reason);
  }

  /** The memory that it holds is needed. */
  evict(): void {
    this.destroy(memoryNeeded());
  }

  // ── the writer's side ──────────────────────────────────────────────────────────────────────────────────────────

  override _write(chunk: Buffer, _encoding: BufferEncoding, done: Done): void {
    if (chunk.length === 0) done();
    else this.#send([chunk], chunk.length, done);
  }

  override _writev(chunks: Array<{ chunk: Buffer; encoding: BufferEncoding }>, done: Done): void {
    const buffers: Buffer[] = [];
    let byteLength = 0;
    for (const { chunk } of chunks) {
      if (chunk.length === 0) continue;
      buffers.push(chunk);
      byteLength += chunk.length;
    }
    if (buffers.length === 0) done();
    else this.#send(buffers, byteLength, done);
  }

  #send(chunks: readonly Buffer[], byteLength: number, done: Done): void {
    this.#outgoing = this.#outgoingLeft === 0 ? chunks : [...this.#remnant(), ...chunks];
    this.#outgoingLeft += byteLength;
    this.#outgoingIndex = 0;
    this.#outgoingOffset = 0;
    this.#outgoingDone = done;
    this.accept();
    this.#wire.ready(this);
  }

  /** True while there is something to send and the peer lets us. */
  get sendable(): boolean {
    return this.#outgoingLeft > 0 && this.#sendWindow.available > 0;
  }

  #remnant(): readonly Buffer[] {
    const [first, ...others] = this.#outgoing.slice(this.#outgoingIndex);
    return first === undefined ? NOTHING : [first.subarray(this.#outgoingOffset), ...others];
  }

  /**
   * Moves up to `limit` bytes of payload into `batch`. Returns how many; the window is charged. Whether the writer is let
   * go says `settleWrite`.
   */
  takePayload(limit: number, batch: Buffer[]): number {
    const room = Math.min(limit, this.#sendWindow.available);
    let taken = 0;
    while (taken < room) {
      const chunk = this.#outgoing[this.#outgoingIndex];
      if (chunk === undefined) break;
      const start = this.#outgoingOffset;
      const end = Math.min(chunk.length, start + room - taken);
      batch.push(start === 0 && end === chunk.length ? chunk : chunk.subarray(start, end));
      taken += end - start;
      this.#outgoingOffset = end;
      if (end === chunk.length) {
        this.#outgoingIndex++;
        this.#outgoingOffset = 0;
      }
    }
    this.#sendWindow.available -= taken;
    this.#outgoingLeft -= taken;
    this.#oneWay += taken;
    return taken;
  }

  /**
   * Lets the writer go when what it wrote has been taken, or all but a remnant behind a frame of `taken` bytes. Apart from
   * `takePayload`, because it runs foreign code. True: a remnant waits for more.
   */
  settleWrite(taken: number): boolean {
    if (this.#outgoingLeft === 0) this.#outgoing = NOTHING;
    else if (!this.#leavesRemnant(taken)) return false;
    const done = this.#outgoingDone;
    this.#outgoingDone = undefined;
    done?.();
    if (this.#outgoingLeft > 0) return this.#outgoingDone === undefined && this.#finalDone === undefined;
    if (this.#finalDone !== undefined) this.#finish(this.#finalDone);
    this.#finalDone = undefined;
    return false;
  }

  /** What the window holds back is not let go. */
  #leavesRemnant(taken: number): boolean {
    const left = this.#outgoingLeft;
    const isSmall = taken >= BEFORE_REMNANT && left <= MOST_REMNANT && left <= this.#sendWindow.available;
    return isSmall && this.#oneWay >= this.#wire.bulkBytes;
  }

  override _final(done: Done): void {
    if (this.#outgoingLeft === 0) {
      this.#finish(done);
      return;
    }
    this.#finalDone = done;
    this.#wire.ready(this);
  }

  #finish(done: Done): void {
    if (!this.#released) {
      this.#localEnded = true;
      this.accept();
      this.#wire.sendFin(this);
      if (this.#remoteEnded) this.#release();
    }
    done();
  }

  // ── the reader's side ──────────────────────────────────────────────────────────────────────────────────────────

  /** The peer sends as far as its window lets it: what has come already is given, or else what comes next. */
  override _read(): void {
    this.#isAsked = true;
    this.#giveNext();
  }

  #giveNext(): void {
    const piece = this.#backlog.take();
    if (piece !== undefined) this.#give(piece);
    if (this.#remoteEnded && this.#backlog.bytes === 0) this.push(null);
  }

  #give(piece: Buffer): void {
    this.#isAsked = false;
    this.push(piece);
  }

  /** Node hands buffered bytes out through here; bytes that find a flowing reader pass by it, inside `push`. */
  override read(size?: number): unknown {
    const chunk = super.read(size);
    if (chunk === null) return null;
    this.#settleRead();
    // A reader that takes what it was told of, and no more, is to be told of the rest.
    if (this.readableFlowing !== true && this.readableLength === 0 && this.#backlog.bytes > 0) this.#giveNext();
    return chunk;
  }

  #stand(): void {
    this.#stands = true;
    if (this.#progress === undefined) this.#progress = new ProgressTracker(this.#wire.now());
    else this.#progress.restart(this.#wire.now());
  }

  /** Counts what the reader has taken since last time, and gives the peer credit for it. */
  #settleRead(): void {
    const taken = this.#unread - this.readableLength - this.#backlog.bytes;
    if (taken <= 0) return;
    this.#unread -= taken;
    this.#wire.hold(-taken);
    if (this.#stands) this.#progress?.progress(this.#wire.now());
    this.#stands &&= this.#unread > 0;
    if (this.#remoteEnded || this.#released) return;
    const again = Math.min(taken, this.#returned);
    this.#returned -= again;
    const credit = this.#receiveWindow.consume(taken - again, this.#wire, this.#wire.now);
    if (credit === 0) return;
    this.accept();
    this.#wire.sendCredit(this, credit, this.#receiveWindow.unhurried);
  }

  /** Bytes put back count as unread again, without a second credit for them. */
  override unshift(chunk: Buffer, encoding?: BufferEncoding): void {
    super.unshift(chunk, encoding);
    const returned = this.readableLength + this.#backlog.bytes - this.#unread;
    if (returned > 0 && !this.destroyed) {
      this.#unread += returned;
      this.#returned += returned;
      this.#wire.hold(returned);
      if (!this.#stands) this.#stand();
    }
  }

  // ── what the session has read from the wire ────────────────────────────────────────────────────────────────────

  onAck(): void {
    if (this.#acknowledged) return;
    this.#acknowledged = true;
    const told = this.onAcknowledged;
    this.onAcknowledged = undefined;
    told?.();
  }

  /** A data frame of `length` bytes begins. False: beyond the window. */
  onDataHeader(length: number): boolean {
    return this.#receiveWindow.receive(length);
  }

  /** The peer may not send behind its own FIN. */
  get remoteEnded(): boolean {
    return this.#remoteEnded;
  }

  onData(piece: Buffer): void {
    if (this.destroyed) return;
    this.#oneWay = 0;
    this.#unread += piece.length;
    this.#wire.hold(piece.length);
    if (this.#takesAtOnce) this.#give(piece);
    else this.#keep(piece);
    this.#settleRead();
    if (!this.#stands && this.#unread > 0) this.#stand();
  }

  /** A piece that finds a flowing reader goes through. */
  get #takesAtOnce(): boolean {
    return this.readableFlowing === true && this.readableLength === 0 && this.#backlog.bytes === 0;
  }

  /** The Duplex gets one piece, so that its reader hears of it, and what it asks for. */
  #keep(piece: Buffer): void {
    if (!this.#isAsked && this.readableLength + this.#backlog.bytes > 0) this.#backlog.add(piece);
    else this.#give(compact(piece));
  }

  /** False: more credit than the protocol can express. */
  onCredit(delta: number): boolean {
    if (!this.#sendWindow.grant(delta)) return false;
    if (this.sendable) this.#wire.ready(this);
    return true;
  }

  onFin(): void {
    if (this.#remoteEnded || this.#released) return;
    this.#remoteEnded = true;
    if (this.#localEnded) this.#release();
    if (this.#backlog.bytes === 0) this.push(null);
  }

  onReset(): void {
    this.#release();
    this.destroy(streamReset());
  }

  onSessionLost(cause: Error | undefined): void {
    this.#release();
    this.destroy(sessionLost(cause));
  }

  // ── the end ────────────────────────────────────────────────────────────────────────────────────────────────────

  override _destroy(error: Error | null, done: Done): void {
    this.#wire.hold(-this.#unread);
    this.#unread = 0;
    this.#backlog.clear();
    if (!this.#released) {
      this.#release();
      this.#wire.sendReset(this);
    }
    this.#wire.destroyed(this);
    this.emit(DESTROYED);
    this.onAcknowledged = undefined;
    const abandoned = this.#outgoingDone ?? this.#finalDone;
    this.#outgoing = NOTHING;
    this.#outgoingLeft = 0;
    this.#outgoingDone = undefined;
    this.#finalDone = undefined;
    abandoned?.(error ?? streamReset("the stream was closed before the write was sent"));
    done(error);
  }

  #release(): void {
    if (this.#released) return;
    this.#released = true;
    this.#wire.release(this);
  }
}
