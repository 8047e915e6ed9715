import { Duplex } from "node:stream";
import { compact } from "../basics/bytes.ts";
import { QueueNode } from "../basics/collections.ts";
import { DESTROYED, type MemoryAccount, memoryNeeded, type Reclaimable } from "../limits/memory-account.ts";
import type { SessionOptions } from "./bounds.ts";
import { streamReset } from "./errors.ts";
import { type Pings, ReadBuffer, type ReceiveWindow, type StreamMemory } from "./flow-control.ts";
import { Flag, FrameType } from "./frame.ts";
import { SendBuffer, type SendingStream, type SendQueue } from "./send-queue.ts";
import type { SessionMemory } from "./session-memory.ts";

type WriteDone = (error?: Error | null) => void;

/** High-water mark of the writable side, bytes. The readable side is bounded by the window instead. */
const WRITE_HIGH_WATER_MARK = 64 * 1024;

/** The parts of a session that a stream uses. */
export interface StreamOwner {
  readonly options: SessionOptions;
  readonly queue: SendQueue;
  readonly pings: Pings;
  readonly memory: SessionMemory;
  sendAck(stream: Stream): void;
  /** Both directions are over, or the stream was reset. */
  release(stream: Stream): void;
}

/**
 * One yamux stream as a Duplex. Backpressure: `_write` keeps its callback until the peer's window allows the bytes.
 * Reading gives credit, `end()` is FIN, and `destroy()` is RST unless both directions have ended.
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
  /** Node of this stream among those that have something to send. */
  readonly turn: QueueNode<SendingStream> = new QueueNode<SendingStream>(this);
  /** Called once, when the peer's ACK arrives. */
  onAcknowledged: (() => void) | undefined;
  /** The reset code in an RST of either end; the session's user defines the codes. 0: none. */
  resetCode = 0;
  /** Counts what it holds, in the session and in the account that pays. */
  memory: StreamMemory;
  readonly receiveWindow: ReceiveWindow;
  readonly #table: StreamOwner;
  #acknowledged = false;
  #ackSent = false;
  #localEnded = false;
  #remoteEnded = false;
  #released = false;
  /** `_read` was called and not answered yet; Node does not call it again before a `push`. */
  #isReadPending = false;
  readonly #incoming: ReadBuffer;
  readonly #outgoing: SendBuffer;
  #writeDone: WriteDone | undefined;
  /** Bytes sent since any came back. */
  #sentOneWay = 0;
  /** The writer has ended; FIN goes when all is sent. */
  #finalDone: WriteDone | undefined;
  /** Node of this stream in the account that pays for it. */
  readonly #charged = new QueueNode<Reclaimable>(this);

  /** @param sendWindow bytes that the peer takes before it gives credit */
  constructor(id: number, table: StreamOwner, sendWindow: number, receiveWindow: ReceiveWindow) {
    // Node's own buffer keeps pieces as they come, and many small ones cost much more than their bytes.
    super({ readableHighWaterMark: 0, writableHighWaterMark: WRITE_HIGH_WATER_MARK, decodeStrings: true });
    this.id = id;
    this.#table = table;
    this.memory = table.memory.ofPool;
    table.options.pool.enter(this.#charged);
    this.receiveWindow = receiveWindow;
    this.#incoming = new ReadBuffer(this.memory, table.options.now);
    this.#outgoing = new SendBuffer(sendWindow);
  }

  /** The peer has accepted the stream: its ACK has arrived. */
  get acknowledged(): boolean {
    return this.#acknowledged;
  }

  /** Bytes received and not yet taken by the reader; a reset frees them. */
  get held(): number {
    return this.#incoming.unread;
  }

  get lastProgressAt(): number {
    return this.#incoming.lastProgressAt;
  }

  get longestPauseMs(): number {
    return this.#incoming.longestPauseMs;
  }

  /** Bytes that the peer may still send. */
  get allowance(): number {
    return this.#remoteEnded ? 0 : this.receiveWindow.allowance;
  }

  /** Sends the ACK now, for a peer that waits for it; else it goes before the first bytes, credit or FIN. */
  accept(): void {
    if (this.#ackSent || this.#released) return;
    this.#ackSent = true;
    this.#table.sendAck(this);
  }

  /** Another account than the session's pays from now on; once. A stream whose window has grown stays as it is. */
  chargeTo(account: MemoryAccount): void {
    if (this.destroyed || this.receiveWindow.reserved > 0) return;
    this.memory = this.#table.memory.paidBy(account);
    this.#incoming.moveTo(this.memory);
    account.enter(this.#charged);
  }

  /** Ends the stream with RST on the wire, which tells the peer the code. */
  reset(reason?: Error, code = this.resetCode): void {
    this.resetCode = code;
    this.destroy(reason);
  }

  /** Ends it, because the memory that it holds is needed. */
  evict(sentence?: string): void {
    this.destroy(memoryNeeded(sentence));
  }

  // ── the writer's side ──────────────────────────────────────────────────────────────────────────────────────────

  override _write(chunk: Buffer, _encoding: BufferEncoding, done: WriteDone): void {
    if (chunk.length === 0) done();
    else this.#send([chunk], chunk.length, done);
  }

  override _writev(chunks: Array<{ chunk: Buffer; encoding: BufferEncoding }>, done: WriteDone): void {
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

  #send(chunks: readonly Buffer[], byteLength: number, done: WriteDone): void {
    this.#outgoing.add(chunks, byteLength);
    this.#writeDone = done;
    this.accept();
    this.#table.queue.ready(this);
  }

  /** True while there is something to send and the peer's window allows it. */
  get sendable(): boolean {
    return this.#outgoing.isSendable;
  }

  /** Moves up to `limit` bytes of payload into `batch`. Returns how many. `completeWrite` has to follow. */
  takePayload(limit: number, batch: Buffer[]): number {
    const taken = this.#outgoing.take(limit, batch);
    this.#sentOneWay += taken;
    return taken;
  }

  /**
   * Calls back the write of which a frame of `taken` bytes was sent, if all of it was, or all but a tail that may
   * wait. Apart from `takePayload`, because it runs foreign code. Returns true if a tail waits for more.
   */
  completeWrite(taken: number): boolean {
    if (this.#outgoing.length > 0 && !this.#mayKeepTail(taken)) return false;
    const done = this.#writeDone;
    this.#writeDone = undefined;
    done?.();
    if (this.#outgoing.length > 0) return this.#writeDone === undefined && this.#finalDone === undefined;
    if (this.#finalDone !== undefined) this.#finish(this.#finalDone);
    this.#finalDone = undefined;
    return false;
  }

  /** In the middle of a bulk transfer, and unless the window holds it back. */
  #mayKeepTail(taken: number): boolean {
    return this.#sentOneWay >= this.#table.options.bulkBytes && this.#outgoing.isTail(taken);
  }

  override _final(done: WriteDone): void {
    if (this.#outgoing.length === 0) {
      this.#finish(done);
      return;
    }
    this.#finalDone = done;
    this.#table.queue.ready(this);
  }

  #finish(done: WriteDone): void {
    if (!this.#released) {
      this.#localEnded = true;
      this.accept();
      this.#sendUpdate(Flag.fin, 0);
      if (this.#remoteEnded) this.#release();
    }
    done();
  }

  // ── the reader's side ──────────────────────────────────────────────────────────────────────────────────────────

  /** Gives what has arrived, or else what arrives next: the peer sends by itself as far as its window allows. */
  override _read(): void {
    this.#settleRead(); // from Node.js 26.12 on a flowing reader takes buffered bytes without `read`
    this.#isReadPending = true;
    this.#giveNext();
  }

  #giveNext(): void {
    const piece = this.#incoming.dequeue();
    if (piece !== undefined) this.#give(piece);
    if (this.#remoteEnded && this.#incoming.queued === 0) this.push(null);
  }

  #give(piece: Buffer): void {
    this.#isReadPending = false;
    this.push(piece);
  }

  /** Node takes buffered bytes here or after `_read`, but gives arriving bytes to a flowing reader inside `push`. */
  override read(size?: number): unknown {
    const chunk = super.read(size);
    if (chunk === null) return null;
    this.#settleRead();
    // A reader that takes only what it was notified of has to be notified of the rest.
    if (this.readableFlowing !== true && this.readableLength === 0 && this.#incoming.queued > 0) this.#giveNext();
    return chunk;
  }

  /** Counts what the reader has taken since the last call, and gives the peer credit for it. */
  #settleRead(): void {
    const read = this.#incoming.onRead(this.readableLength);
    if (read === 0 || this.#remoteEnded || this.#released) return;
    const credit = this.receiveWindow.consume(read, this.memory, this.#table.pings);
    if (credit === 0) return;
    this.accept();
    this.#sendUpdate(Flag.none, credit);
  }

  /** Bytes put back count as unread again, without a second credit for them. */
  override unshift(chunk: Buffer, encoding?: BufferEncoding): void {
    super.unshift(chunk, encoding);
    if (!this.destroyed) this.#incoming.onUnshift(this.readableLength);
  }

  // ── what the session has read from the wire ────────────────────────────────────────────────────────────────────

  onAck(): void {
    this.#acknowledged = true;
    const listener = this.onAcknowledged;
    this.onAcknowledged = undefined;
    listener?.();
  }

  get remoteEnded(): boolean {
    return this.#remoteEnded;
  }

  onData(piece: Buffer): void {
    if (this.destroyed) return;
    this.#sentOneWay = 0;
    this.#incoming.onReceived(piece.length);
    if (this.#takesAtOnce) this.#give(piece);
    else this.#keep(piece);
    this.#settleRead();
    this.#incoming.count();
  }

  /** The reader is flowing and nothing waits in front of the piece. */
  get #takesAtOnce(): boolean {
    return this.readableFlowing === true && this.readableLength === 0 && this.#incoming.queued === 0;
  }

  /** The Duplex gets one piece, so that its reader is notified, and more only when it asks. */
  #keep(piece: Buffer): void {
    if (!this.#isReadPending && this.readableLength + this.#incoming.queued > 0) this.#incoming.enqueue(piece);
    else this.#give(compact(piece));
  }

  /** Returns false if that is more credit than the protocol can express. */
  onCredit(delta: number): boolean {
    if (!this.#outgoing.grant(delta)) return false;
    if (this.sendable) this.#table.queue.ready(this);
    return true;
  }

  onFin(): void {
    if (this.#remoteEnded || this.#released) return;
    this.#remoteEnded = true;
    if (this.#localEnded) this.#release();
    if (this.#incoming.queued === 0) this.push(null);
  }

  /** The stream is over on the wire: the peer has reset it, or its session is lost. */
  onOver(error: Error): void {
    this.#release();
    this.destroy(error);
  }

  // ── the end ────────────────────────────────────────────────────────────────────────────────────────────────────

  override _destroy(error: Error | null, done: WriteDone): void {
    this.#incoming.clear();
    if (!this.#released) {
      this.#release();
      this.#sendUpdate(Flag.rst, this.resetCode);
    }
    this.#charged.leave();
    this.#table.memory.forget(this);
    this.emit(DESTROYED);
    this.onAcknowledged = undefined;
    const abandoned = this.#writeDone ?? this.#finalDone;
    this.#outgoing.clear();
    this.#writeDone = undefined;
    this.#finalDone = undefined;
    abandoned?.(error ?? streamReset("the stream was closed before the write was sent"));
    done(error);
  }

  #release(): void {
    if (this.#released) return;
    this.#released = true;
    this.#table.release(this);
  }

  #sendUpdate(flags: number, value: number): void {
    this.#table.queue.control(FrameType.windowUpdate, flags, this.id, value);
  }
}
