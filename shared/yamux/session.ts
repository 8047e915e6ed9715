import { type Deferred, deferred } from "../basics/promises.ts";
import { TokenBucket } from "../basics/rate-limit.ts";
import { type MemoryAccount, PRESSURE } from "../limits/memory-account.ts";
import { completeOptions, type SessionOptions } from "./bounds.ts";
import { isViolation, streamReset, YamuxError } from "./errors.ts";
import { Pings } from "./flow-control.ts";
import { Decoder, Flag, type FrameConsumer, FrameType, GoAwayCode, SPEC_INITIAL_WINDOW } from "./frame.ts";
import { SendQueue } from "./send-queue.ts";
import type { Stream } from "./stream.ts";
import { StreamTable } from "./stream-table.ts";
import type { Transport, TransportConsumer } from "./transport.ts";

/** The side that dialled is the client and opens odd ids; the other opens even ones (spec, "Stream ID field"). */
export type SessionRole = "client" | "server";

export interface SessionHandler {
  /** The peer opened a stream. `stream.accept()` accepts it, `stream.reset()` refuses it. */
  onStream(stream: Stream): void;
  /** The peer opens and accepts no more streams; open ones live on. */
  onGoAway?(code: number): void;
  /** The session is over and its streams are destroyed. `reason` is absent if either side closed it cleanly. */
  onClosed(reason: Error | undefined): void;
}

/** When this many control frames wait, 12 bytes each, the session ends: the peer asks and never reads the answers. */
const MAX_CONTROL_FRAMES = 24_576;
/** When this many bytes of control frames wait, first payloads included, no more streams are opened. */
const MAX_CONTROL_BYTES = 1024 * 1024;
/** Credit or payload of fewer bytes counts as an idle frame: an honest peer gives credit by halves of a window. */
const LEAST_USEFUL = 256;
/** Payload of fewer bytes is little: its frame costs us more than the peer. */
const LITTLE_BYTES = 64;
/** Time for the last frames of a session to be sent before the transport is destroyed. */
const LINGER_MS = { least: 500, most: 10_000 };
/** A session without streams for this time, ms, has only its go-away to send, and does not wait for a dead peer. */
const QUIET_MS = 1_000;

/** One yamux session on one transport (hashicorp/yamux `spec.md`; our choices: `spec.md` beside this file). */
export class Session {
  readonly #transport: Transport;
  readonly #handler: SessionHandler;
  readonly #options: SessionOptions;
  readonly #queue: SendQueue;
  readonly #decoder: Decoder;
  readonly #pings: Pings;
  readonly #streams: StreamTable;
  /** Frames that carry nothing, or little: they cost us more than the peer that sends them. */
  readonly #idleFrames: TokenBucket;
  #receiving: Stream | undefined;
  #localGoAway = false;
  #remoteGoAway = false;
  #closed = false;
  #whenIdle: Deferred<void> | undefined;
  #idleSince: number;
  #lingerTimer: NodeJS.Timeout | undefined;
  readonly #transportGone = deferred();

  constructor(role: SessionRole, transport: Transport, handler: SessionHandler, options: Partial<SessionOptions> = {}) {
    this.#transport = transport;
    this.#handler = handler;
    this.#options = completeOptions(options);
    const { now, maxIdleFramesPerSecond: perSecond } = this.#options;
    this.#idleSince = now();
    this.#queue = new SendQueue(transport, this.#options);
    this.#pings = new Pings(now, (value) => this.#queue.control(FrameType.ping, Flag.syn, 0, value));
    const first = role === "client" ? 1 : 2;
    this.#streams = new StreamTable(first, this.#queue, this.#pings, this.#options, this.#onEmpty);
    this.#idleFrames = new TokenBucket({ perSecond, burst: perSecond, now });
    this.#decoder = new Decoder(this.#frames);
    transport.start(this.#pipe);
    this.#pings.refresh();
  }

  // ── for the owner ──────────────────────────────────────────────────────────────────────────────────────────────

  get streamCount(): number {
    return this.#streams.size;
  }

  /** Streams we opened that the peer has not acknowledged. */
  get pendingOpens(): number {
    return this.#streams.pendingOpens;
  }

  /** Bytes received that no reader has taken. */
  get bufferedBytes(): number {
    return this.#streams.memory.held;
  }

  /** Streams reset because the session held more than its budget. */
  get resetForMemory(): number {
    return this.#streams.memory.resets;
  }

  /** The shortest of the last round trips, ms; 0 before the first. */
  get rttMs(): number {
    return this.#pings.leastMs;
  }

  /** One side has sent a go-away. */
  get draining(): boolean {
    return this.#localGoAway || this.#remoteGoAway;
  }

  get closed(): boolean {
    return this.#closed;
  }

  streams(): Iterable<Stream> {
    return this.#streams.values();
  }

  /** Opens a stream. `first` goes with the SYN and must fit the initial window; `account` pays in place of the pool. */
  open(first?: Buffer, account?: MemoryAccount): Stream {
    this.#assertMayOpen(account);
    const length = first?.length ?? 0;
    if (length > this.#streams.initialSendWindow) throw new RangeError(`${length} bytes are beyond the initial window`);
    const stream = this.#streams.open(length, account);
    const delta = this.#streams.initialDelta(stream);
    if (first !== undefined) this.#queue.control(FrameType.data, Flag.syn, stream.id, length, first);
    const flag = first === undefined ? Flag.syn : Flag.none;
    if (first === undefined || delta > 0) this.#queue.control(FrameType.windowUpdate, flag, stream.id, delta);
    return stream;
  }

  #assertMayOpen(account: MemoryAccount | undefined): void {
    if (this.#closed) throw new YamuxError("closed", "the session has ended");
    if (this.draining) throw new YamuxError("go_away", "the session takes no new streams");
    if (this.#streams.idsExhausted) throw new YamuxError("exhausted", "no stream ids are left");
    if (this.#isOverloaded) throw new YamuxError("overloaded", "the session has too many streams");
    if (this.#isPoolFull(account)) throw new YamuxError("pool_full", "all sessions together hold as much as they may");
  }

  get #isOverloaded(): boolean {
    return this.#streams.isFull || this.#queue.controlBytes > MAX_CONTROL_BYTES;
  }

  /** Called last for each new stream, because it counts a refusal when it returns true. */
  #isPoolFull(pool = this.#options.pool): boolean {
    if (pool.pressure < PRESSURE.full) return false;
    pool.onRefused();
    return true;
  }

  /** Measures one round trip, ms. Rejects if the session ends first. */
  ping(): Promise<number> {
    return this.#pings.ping();
  }

  /** Sends a go-away: no new streams either way; open ones live on. */
  drain(): void {
    this.#sendGoAway(GoAwayCode.normal);
  }

  /**
   * Drains, waits for the streams up to `deadlineMs`, then ends the transport; streams that are still open are lost.
   * The rest of the time is for the last bytes. Resolves when the transport has closed, so that the process may exit.
   */
  async close(deadlineMs: number): Promise<void> {
    const begun = this.#options.now();
    const isQuiet = this.#streams.size === 0 && begun - this.#idleSince >= QUIET_MS;
    this.drain();
    if (!this.#closed && this.#streams.size > 0) await this.#idle(deadlineMs);
    this.#end(undefined, isQuiet ? 0 : deadlineMs - (this.#options.now() - begun));
    await this.#transportGone.promise;
  }

  /** Ends session, streams and transport now. */
  destroy(reason?: Error): void {
    if (this.#closed) return;
    this.#finish(reason);
    this.#transport.destroy(reason);
  }

  async #idle(deadlineMs: number): Promise<void> {
    this.#whenIdle ??= deferred();
    const timer = setTimeout(this.#whenIdle.resolve, deadlineMs);
    await this.#whenIdle.promise;
    clearTimeout(timer);
  }

  readonly #onEmpty = (): void => {
    this.#idleSince = this.#options.now();
    this.#whenIdle?.resolve();
  };

  #sendGoAway(code: number): void {
    if (this.#localGoAway || this.#closed) return;
    this.#localGoAway = true;
    this.#queue.control(FrameType.goAway, Flag.none, 0, code);
  }

  /** Sends the last frames and ends the transport; destroys it if the peer does not take them in time. */
  #end(reason: Error | undefined, lingerMs: number): void {
    if (this.#closed) return;
    this.#queue.end();
    const boundMs = Math.min(LINGER_MS.most, Math.max(LINGER_MS.least, lingerMs));
    this.#lingerTimer = setTimeout(() => this.#transport.destroy(reason), boundMs).unref();
    this.#finish(reason);
    this.#transport.end();
  }

  #finish(reason: Error | undefined): void {
    this.#closed = true;
    this.#queue.stop();
    this.#decoder.stop();
    this.#pings.stop(reason);
    this.#streams.lose(reason);
    this.#whenIdle?.resolve();
    this.#handler.onClosed(reason);
  }

  // ── from the transport ─────────────────────────────────────────────────────────────────────────────────────────

  readonly #pipe: TransportConsumer = {
    onBytes: (chunk) => {
      if (this.#closed) return;
      try {
        this.#decoder.push(chunk);
        if (this.#queue.controlFrames > MAX_CONTROL_FRAMES) throw new YamuxError("flood", "the peer reads no answers");
      } catch (error) {
        if (!isViolation(error)) throw error;
        this.#sendGoAway(GoAwayCode.protocolError);
        if (error.reason === "flood") this.destroy(error);
        else this.#end(error, LINGER_MS.least);
      }
    },
    onWritable: () => this.#queue.onWritable(),
    onClosed: (reason) => {
      clearTimeout(this.#lingerTimer);
      this.#transportGone.resolve();
      if (this.#closed) return;
      const isCut = reason === undefined && !this.#decoder.atBoundary;
      this.#finish(isCut ? new YamuxError("closed", "the transport ended inside a frame") : reason);
    },
  };

  readonly #frames: FrameConsumer = {
    onDataHeader: (flags, id, length) => {
      const isNews = length < LITTLE_BYTES && this.#isNews(flags, id);
      const stream = this.#streamOf(flags, id);
      this.#receiving = stream;
      if (stream === undefined) return this.#onLateData(flags, length);
      if (length < LITTLE_BYTES && !isNews) this.#countIdleFrame(length === 0 ? 1 : this.#options.littleFrameCost);
      if (!stream.receiveWindow.receive(length)) {
        throw new YamuxError("protocol", `a frame of ${length} bytes is beyond the window of stream ${id}`);
      }
      if (stream.remoteEnded && length > 0) {
        this.#receiving = undefined;
        stream.reset(new YamuxError("protocol", `data after the end of stream ${id}`));
      }
    },
    onDataPiece: (piece) => {
      this.#receiving?.onData(piece);
      if (this.#streams.memory.isOverrun) this.#streams.memory.resetLargest();
    },
    onDataEnd: (flags) => {
      const stream = this.#receiving;
      this.#receiving = undefined;
      if (stream !== undefined) this.#applyEnd(flags, stream, 0);
    },
    onWindowUpdate: (flags, id, delta) => {
      const isNews = delta >= LEAST_USEFUL || this.#isNews(flags, id);
      const stream = this.#streamOf(flags, id);
      const isLate = stream === undefined && (flags & Flag.syn) === 0;
      if (isLate || !isNews) this.#countIdleFrame();
      if (stream === undefined) return;
      if (delta > 0 && (flags & Flag.rst) === 0 && !stream.onCredit(delta)) {
        throw new YamuxError("protocol", `the window of stream ${id} would pass 2^32`);
      }
      this.#applyEnd(flags, stream, delta);
    },
    onPing: (flags, value) => {
      this.#countIdleFrame();
      if ((flags & Flag.syn) !== 0) this.#queue.control(FrameType.ping, Flag.ack, 0, value);
      else if ((flags & Flag.ack) !== 0) this.#pings.onAnswer(value);
    },
    onGoAway: (code) => {
      if (this.#remoteGoAway) return;
      this.#remoteGoAway = true;
      this.#handler.onGoAway?.(code);
    },
  };

  /** Whether the flags of a frame say what was not known. SYN, RST and frames for no stream are counted elsewhere. */
  #isNews(flags: number, id: number): boolean {
    if ((flags & (Flag.syn | Flag.rst)) !== 0) return true;
    const stream = flags === Flag.none ? undefined : this.#streams.get(id);
    if (stream === undefined) return flags !== Flag.none;
    if ((flags & Flag.fin) !== 0 && !stream.remoteEnded) return true;
    return (flags & Flag.ack) !== 0 && !stream.acknowledged && this.#streams.isOurs(stream);
  }

  /** The stream that a frame is for, or `undefined` if it has ended here while the frame was under way. */
  #streamOf(flags: number, id: number): Stream | undefined {
    if ((flags & Flag.syn) !== 0) return this.#onSyn(id);
    const stream = this.#streams.get(id);
    if (stream !== undefined && (flags & Flag.ack) !== 0) this.#streams.acknowledge(stream);
    return stream;
  }

  #onSyn(id: number): Stream | undefined {
    const welcome = !this.#localGoAway && !this.#isOverloaded && !this.#isPoolFull();
    const stream = this.#streams.accept(id, welcome);
    if (stream === undefined) {
      this.#countIdleFrame();
      this.#streams.lateData.allow(Math.max(SPEC_INITIAL_WINDOW, this.#options.initialWindow));
      this.#queue.control(FrameType.windowUpdate, Flag.rst, id, 0);
      return undefined;
    }
    this.#handler.onStream(stream);
    if (!stream.destroyed) return stream;
    this.#countIdleFrame(); // the owner has refused it, and it cost us more than the peer
    return undefined;
  }

  /** Payload for a stream that has ended here, or whose SYN in this frame was refused (and counted already). */
  #onLateData(flags: number, length: number): void {
    if (length < LEAST_USEFUL && (flags & Flag.syn) === 0) this.#countIdleFrame();
    if (this.#streams.lateData.take(length)) return;
    throw new YamuxError("protocol", "more data came for streams that have ended than was under way");
  }

  #countIdleFrame(cost = 1): void {
    if (this.#idleFrames.take(cost) === 0) return;
    const most = Math.round(this.#idleFrames.burst / cost);
    const what = cost === 1 ? "nothing" : `less than ${LITTLE_BYTES} bytes`;
    throw new YamuxError("flood", `more than ${most} frames a second carry ${what}`);
  }

  #applyEnd(flags: number, stream: Stream, code: number): void {
    if ((flags & Flag.rst) !== 0) {
      this.#countIdleFrame();
      stream.resetCode = code;
      stream.onOver(streamReset());
    } else if ((flags & Flag.fin) !== 0) stream.onFin();
  }
}
