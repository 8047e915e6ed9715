import { deferred } from "../basics/promises.ts";
import { Decoder, type FrameConsumer } from "./decoder.ts";
import { isViolation, YamuxError } from "./errors.ts";
import { Flag, FrameType, GoAwayCode, SPEC_INITIAL_WINDOW } from "./frame.ts";
import { IdleFrames } from "./idle-frames.ts";
import { LateData } from "./late-data.ts";
import { DEFAULT_OPTIONS, type SessionOptions } from "./options.ts";
import { RoundTrips } from "./round-trips.ts";
import { SendQueue } from "./send-queue.ts";
import type { Stream, StreamWire } from "./stream.ts";
import { StreamTable } from "./stream-table.ts";
import type { Transport, TransportConsumer } from "./transport.ts";

/** Who dialled is the client and opens odd ids; the other opens even ones (spec, "Stream ID field"). */
export type SessionRole = "client" | "server";

export interface SessionHandler {
  /** The peer opened a stream. It is accepted by `stream.accept()`, or refused by `stream.reset()`. */
  onStream(stream: Stream): void;
  /** The peer opens no more streams here and takes none; open ones live on. */
  onGoAway?(code: number): void;
  /** The session is over and every stream of it destroyed. `reason` is absent when we or the peer closed it in order. */
  onClosed(reason: Error | undefined): void;
}

/** Control frames waiting for a transport that takes nothing: beyond this the peer only asks and never reads. */
const MAX_CONTROL_FRAMES = 65_536;
/** The same in bytes: heads of opened streams count too, and no more streams are opened. */
const MAX_CONTROL_BYTES = 1024 * 1024;
/** Credit or payload of fewer bytes brings less than it costs: an honest peer gives credit by halves of a window. */
const LEAST_OF_USE = 256;
/** The last frames of a session have this long to leave, whatever its owner allows; then the transport is cut. */
const LINGER_MS = { least: 500, most: 10_000 };
/** A session without streams for so long has nothing under way but its go-away: a dead peer is not waited for. */
const QUIET_MS = 1_000;

/** One yamux session on one transport (hashicorp/yamux `spec.md`; our choices: `spec.md` beside this file). */
export class Session {
  readonly #transport: Transport;
  readonly #handler: SessionHandler;
  readonly #options: SessionOptions;
  readonly #queue: SendQueue;
  readonly #decoder: Decoder;
  readonly #roundTrips: RoundTrips;
  readonly #wire: StreamWire;
  readonly #streams: StreamTable;
  readonly #idleFrames: IdleFrames;
  readonly #lateData: LateData;
  #receiving: Stream | undefined;
  #localGoAway = false;
  #remoteGoAway = false;
  #closed = false;
  #whenIdle: (() => void) | undefined;
  #idleSince: number;
  #lingering: NodeJS.Timeout | undefined;
  readonly #transportGone = deferred();

  constructor(role: SessionRole, transport: Transport, handler: SessionHandler, options: Partial<SessionOptions> = {}) {
    this.#transport = transport;
    this.#handler = handler;
    const chosen = { ...DEFAULT_OPTIONS, ...options };
    const { maxWindow, initialWindow, freshWindow } = chosen;
    this.#options = { ...chosen, maxWindow: Math.max(maxWindow, initialWindow, freshWindow) };
    this.#idleSince = chosen.now();
    this.#queue = new SendQueue(transport, this.#options);
    this.#streams = new StreamTable(role === "client" ? 1 : 2, this.#options);
    this.#idleFrames = new IdleFrames(this.#options.maxIdleFramesPerSecond, this.#options.now);
    this.#lateData = new LateData(this.#options.now);
    this.#decoder = new Decoder(this.#frames);
    this.#roundTrips = new RoundTrips(this.#options.now, (value) =>
      this.#queue.control(FrameType.ping, Flag.syn, 0, value),
    );
    this.#wire = this.#streamWire();
    transport.start(this.#pipe);
    this.#roundTrips.refresh();
  }

  // ── what the owner sees ────────────────────────────────────────────────────────────────────────────────────────

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

  /** The least round trip measured lately, in ms; 0 before the first. */
  get rttMs(): number {
    return this.#roundTrips.leastMs;
  }

  /** One end has said go-away. */
  get draining(): boolean {
    return this.#localGoAway || this.#remoteGoAway;
  }

  get closed(): boolean {
    return this.#closed;
  }

  streams(): Iterable<Stream> {
    return this.#streams.values();
  }

  /** Opens a stream. `first` goes with the SYN in one frame and must fit the initial window. */
  open(first?: Buffer): Stream {
    this.#mayOpen();
    const length = first?.length ?? 0;
    if (length > this.#streams.sendWindowAtFirst) throw new RangeError(`${length} bytes are beyond the initial window`);
    const stream = this.#streams.open(this.#wire, length);
    const delta = this.#streams.deltaAtFirst(stream);
    if (first === undefined) this.#queue.control(FrameType.windowUpdate, Flag.syn, stream.id, delta);
    else {
      this.#queue.control(FrameType.data, Flag.syn, stream.id, length, first);
      if (delta > 0) this.#queue.control(FrameType.windowUpdate, Flag.none, stream.id, delta);
    }
    return stream;
  }

  #mayOpen(): void {
    if (this.#closed) throw new YamuxError("closed", "the session has ended");
    if (this.draining) throw new YamuxError("go_away", "the session takes no new streams");
    if (this.#streams.idsExhausted) throw new YamuxError("exhausted", "no stream ids are left");
    if (this.#isOverloaded()) throw new YamuxError("overloaded", "the session has too many streams");
    if (this.#isPoolFull()) throw new YamuxError("pool_full", "all sessions together hold as much as they may");
  }

  #isOverloaded(): boolean {
    return this.#streams.isFull || this.#queue.controlBytes > MAX_CONTROL_BYTES;
  }

  /** Asked for each new stream when nothing else speaks against it: a yes is counted as its refusal. */
  #isPoolFull(): boolean {
    const { pool } = this.#options;
    if (pool.isFull) pool.onRefused();
    return pool.isFull;
  }

  /** Measures one round trip, in ms. Rejects when the session ends first. */
  ping(): Promise<number> {
    if (this.#closed) return Promise.reject(new YamuxError("closed", "the session has ended"));
    return this.#roundTrips.ping();
  }

  /** Go-away: nothing new here, neither way; open streams live on. */
  drain(): void {
    this.#sayGoAway(GoAwayCode.normal);
  }

  /**
   * Drains, waits for the streams up to `deadlineMs`, then ends the transport; streams still open are lost. The last bytes
   * have what is left of the time. Resolves when the transport has gone, so that a process may exit right after it.
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

  #idle(deadlineMs: number): Promise<void> {
    return new Promise((resolve) => {
      const timer = setTimeout(resolve, deadlineMs);
      const alsoWaiting = this.#whenIdle;
      this.#whenIdle = () => {
        clearTimeout(timer);
        resolve();
        alsoWaiting?.();
      };
    });
  }

  #sayGoAway(code: number): void {
    if (this.#localGoAway || this.#closed) return;
    this.#localGoAway = true;
    this.#queue.control(FrameType.goAway, Flag.none, 0, code);
  }

  /** The last frames are still sent, then the transport ends; a peer that does not take them is cut. */
  #end(reason: Error | undefined, lingerMs: number = LINGER_MS.most): void {
    if (this.#closed) return;
    this.#queue.end();
    const boundMs = Math.min(LINGER_MS.most, Math.max(LINGER_MS.least, lingerMs));
    this.#lingering = setTimeout(() => this.#transport.destroy(reason), boundMs).unref();
    this.#finish(reason);
    this.#transport.end();
  }

  #finish(reason: Error | undefined): void {
    this.#closed = true;
    this.#queue.stop();
    this.#decoder.stop();
    this.#roundTrips.stop(reason);
    this.#streams.lose(reason);
    this.#whenIdle?.();
    this.#handler.onClosed(reason);
  }

  // ── streams ────────────────────────────────────────────────────────────────────────────────────────────────────

  #streamWire(): StreamWire {
    const session = this;
    return {
      now: this.#options.now,
      bulkBytes: this.#options.bulkBytes,
      get roundTripMs() {
        session.#roundTrips.refresh();
        return session.#roundTrips.leastMs;
      },
      get mustShrink() {
        return session.#streams.memory.mustShrink;
      },
      reserve: (bytes) => session.#streams.memory.reserve(bytes),
      giveBack: (bytes) => session.#streams.memory.giveBack(bytes),
      ready: (stream) => session.#queue.ready(stream),
      sendAck: (stream) => {
        if (session.#streams.isOurs(stream)) return;
        const delta = session.#streams.deltaAtFirst(stream);
        session.#queue.control(FrameType.windowUpdate, Flag.ack, stream.id, delta);
      },
      sendCredit: (stream, delta, unhurried) => session.#queue.credit(stream.id, delta, unhurried),
      sendFin: (stream) => session.#queue.control(FrameType.windowUpdate, Flag.fin, stream.id, 0),
      sendReset: (stream) => session.#queue.control(FrameType.windowUpdate, Flag.rst, stream.id, 0),
      release: (stream) => session.#release(stream),
      destroyed: (stream) => session.#streams.memory.forget(stream),
      hold: (delta) => session.#streams.memory.hold(delta),
    };
  }

  #release(stream: Stream): void {
    if (!this.#streams.release(stream)) return;
    this.#lateData.allow(stream.allowance);
    this.#queue.remove(stream);
    if (this.#streams.size > 0) return;
    this.#idleSince = this.#options.now();
    this.#whenIdle?.();
  }

  // ── from the transport ─────────────────────────────────────────────────────────────────────────────────────────

  readonly #pipe: TransportConsumer = {
    onBytes: (chunk) => {
      if (this.#closed) return;
      try {
        this.#decoder.push(chunk);
        if (this.#queue.controlFrames > MAX_CONTROL_FRAMES) {
          this.destroy(new YamuxError("flood", "the peer reads no answers"));
        }
      } catch (error) {
        if (!isViolation(error)) throw error;
        this.#sayGoAway(GoAwayCode.protocolError);
        if (error.reason === "flood") this.destroy(error);
        else this.#end(error, LINGER_MS.least);
      }
    },
    onWritable: () => this.#queue.onWritable(),
    onClosed: (reason) => {
      clearTimeout(this.#lingering);
      this.#transportGone.resolve();
      if (this.#closed) return;
      const cut = this.#decoder.atBoundary ? undefined : new YamuxError("closed", "the transport ended inside a frame");
      this.#finish(reason ?? cut);
    },
  };

  readonly #frames: FrameConsumer = {
    onDataHeader: (flags, id, length) => {
      const stream = this.#streamOf(flags, id);
      this.#receiving = stream;
      if (stream === undefined) this.#onLateData(flags, length);
      else if (length === 0 && flags === Flag.none) this.#idleFrames.count();
      if (stream === undefined) return;
      if (!stream.onDataHeader(length)) {
        throw new YamuxError("protocol", `a frame of ${length} bytes is beyond the window of stream ${id}`);
      } else if (stream.remoteEnded && length > 0) {
        this.#receiving = undefined;
        stream.reset(new YamuxError("protocol", `data behind the end of stream ${id}`));
      }
    },
    onDataPiece: (piece) => {
      this.#receiving?.onData(piece);
      if (this.#streams.memory.isOverrun) this.#streams.memory.resetLargest();
    },
    onDataEnd: (flags) => {
      const stream = this.#receiving;
      this.#receiving = undefined;
      if (stream !== undefined) this.#applyEnd(flags, stream);
    },
    onWindowUpdate: (flags, id, delta) => {
      const stream = this.#streamOf(flags, id);
      const isLate = stream === undefined && (flags & Flag.syn) === 0;
      if (isLate || (delta < LEAST_OF_USE && flags === Flag.none)) this.#idleFrames.count();
      if (stream === undefined) return;
      if (delta > 0 && !stream.onCredit(delta)) {
        throw new YamuxError("protocol", `the window of stream ${id} would pass 2^32`);
      }
      this.#applyEnd(flags, stream);
    },
    onPing: (flags, value) => {
      this.#idleFrames.count();
      if ((flags & Flag.syn) !== 0) this.#queue.control(FrameType.ping, Flag.ack, 0, value);
      else if ((flags & Flag.ack) !== 0) this.#roundTrips.onAnswer(value);
    },
    onGoAway: (code) => {
      if (this.#remoteGoAway) return;
      this.#remoteGoAway = true;
      this.#handler.onGoAway?.(code);
    },
  };

  /** The stream that a frame is for; `undefined`: one that has ended here while the frame was under way. */
  #streamOf(flags: number, id: number): Stream | undefined {
    if ((flags & Flag.syn) !== 0) return this.#onSyn(id);
    const stream = this.#streams.get(id);
    if (stream !== undefined && (flags & Flag.ack) !== 0) this.#streams.acknowledge(stream);
    return stream;
  }

  #onSyn(id: number): Stream | undefined {
    const welcome = !this.#localGoAway && !this.#isOverloaded() && !this.#isPoolFull();
    const stream = this.#streams.accept(id, this.#wire, welcome);
    if (stream === undefined) {
      this.#idleFrames.count();
      this.#lateData.allow(Math.max(SPEC_INITIAL_WINDOW, this.#options.initialWindow));
      this.#queue.control(FrameType.windowUpdate, Flag.rst, id, 0);
      return undefined;
    }
    this.#handler.onStream(stream);
    if (!stream.destroyed) return stream;
    this.#idleFrames.count(); // refused by whom it was for: it has cost us more than the peer
    return undefined;
  }

  /** Payload for a stream that has ended here, or was refused by this frame's SYN, which has been counted. */
  #onLateData(flags: number, length: number): void {
    if (length < LEAST_OF_USE && (flags & Flag.syn) === 0) this.#idleFrames.count();
    if (this.#lateData.take(length)) return;
    throw new YamuxError("protocol", "more data came for streams that have ended than was under way");
  }

  #applyEnd(flags: number, stream: Stream): void {
    if ((flags & Flag.rst) !== 0) {
      this.#idleFrames.count();
      stream.onReset();
    } else if ((flags & Flag.fin) !== 0) stream.onFin();
  }
}
