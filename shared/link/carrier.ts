import type { Duplex } from "node:stream";
import type { RawData, WebSocket } from "ws";
import type { TurnQueue } from "../basics/timers.ts";
import { PEER_GONE } from "../listen/paced-close.ts";
import { takeDataListener } from "../node/http.ts";
import { printable } from "../outcomes.ts";
import { CloseCode } from "../wire/handshake.ts";
import type { Transport, TransportConsumer } from "../yamux/transport.ts";
import { type ControlMessage, ControlReader } from "./control.ts";
import { FrameParser, FrameWriter } from "./frames.ts";
import {
  ABNORMAL_CLOSURE,
  CarrierLost,
  explainClose,
  LINK_ENDED,
  type LossCause,
  PeerViolation,
  readClose,
} from "./link-events.ts";
import { Liveness } from "./liveness.ts";

/** Bounds for ws, which handles long text only. Each piece of an incomplete message may keep a whole read alive. */
export const WEBSOCKET_BOUNDS = { maxPayload: 128 * 1024, maxFragments: 64, maxBufferedChunks: 1_024 } as const;
/**
 * Payload that may arrive before `start`, bytes: a server may send one window per stream, an agent an inner TLS
 * handshake.
 */
const MAX_EARLY_BYTES = { client: 1024 * 1024, server: 64 * 1024 } as const;
/** The size that each piece counts beside its payload. */
const EARLY_PIECE_BYTES = 256;
/** Time for the peer to answer our close frame, ms. */
const CLOSE_TIMEOUT_MS = 2_000;
/** Time for that answer on a link that was given up, ms: its owner waits for nothing. */
const ABANDON_TIMEOUT_MS = 100;
/** Time for that answer when all that was written is still to be delivered, ms: a slow path takes some time. */
const END_TIMEOUT_MS = 10_000;
/** Bytes of answers and pings that a peer may leave unread. */
const MAX_UNREAD_CONTROL_BYTES = 256 * 1024;

/** RFC 6455 §5.5: a control frame holds 125 bytes, two of them the code. */
const MAX_CLOSE_REASON = 123;

export interface CarrierOptions {
  /** Our end of the WebSocket: clients mask. */
  readonly role: "client" | "server";
  /** Time between pings, ms. After 2.5 times as much silence the carrier is lost. */
  readonly keepaliveMs: number;
  /** Called with the time until each ping was answered, ms. */
  readonly onEcho?: ((ms: number) => void) | undefined;
  /** Called, perhaps twice, when either side closes the WebSocket while the connection is open: it carries no more. */
  readonly onClosing?: (() => void) | undefined;
  /**
   * The queue in which the first message waits to be read, because thousands of carriers may arrive at once. Absent: no
   * wait.
   */
  readonly turns?: TurnQueue | undefined;
}

/**
 * One WebSocket connection as a transport: binary messages are payload, text messages are control.
 *
 * ws does the handshake, pongs, long text and closing. Binary frames and short text are read by `FrameParser`, and all
 * that we send but close and pong is written by `FrameWriter`, on the socket below ws.
 */
export class Carrier implements Omit<Transport, "room"> {
  /** Called when the carrier ends, also before `start`. */
  onEnded: ((reason: Error | undefined) => void) | undefined;
  /** Set by the owner: how many bytes of the link the peer has acknowledged; `undefined`: all of them. */
  acknowledgedOffset: (() => number | undefined) | undefined;
  readonly #ws: WebSocket;
  readonly #socket: Duplex;
  readonly #options: CarrierOptions;
  readonly #writer: FrameWriter;
  readonly #control: ControlReader;
  readonly #liveness: Liveness;
  #parser: FrameParser | undefined;
  #readRest = (): void => {};
  #consumer: TransportConsumer | undefined;
  /** Payload that came before delivery began; `undefined` from then on. */
  #early: Buffer[] | undefined = [];
  #earlyBytes = 0;
  #failure: Error | undefined;
  #socketError: NodeJS.ErrnoException | undefined;
  /** A pong waits for the socket, and so does the payload of the newest ping after it. */
  #ponging = false;
  #nextPong: Buffer | undefined;
  readonly #startedAt = performance.now();
  /** When the last byte of the peer arrived, on the clock of `performance.now()`. */
  lastByteAt = this.#startedAt;
  #ended = false;
  #ending = false;
  #cutTimer: NodeJS.Timeout | undefined;

  constructor(ws: WebSocket, socket: Duplex, options: CarrierOptions) {
    this.#ws = ws;
    this.#socket = socket;
    this.#options = options;
    this.#writer = new FrameWriter(socket, options.role === "client", () => {
      if (!this.#ended) this.#consumer?.onWritable();
    });
    this.#control = new ControlReader(options.turns, {
      onPing: () => this.sendControl({ type: "pong" }),
      onPong: () => this.#liveness.answered(),
      onViolation: (sentence) => this.fail(CloseCode.badControl, sentence),
    });
    ws.on("message", this.#onMessage);
    ws.on("error", this.#onError);
    ws.on("close", this.#onClose);
    socket.on("error", (error: NodeJS.ErrnoException) => {
      this.#socketError = error;
    });
    socket.once("close", () => clearTimeout(this.#cutTimer));
    this.#readFrames();
    this.#liveness = new Liveness(options.keepaliveMs, {
      lastByteAt: () => this.lastByteAt,
      ping: () => this.sendControl({ type: "ping" }),
      dead: (sentence) => this.#endFor(CloseCode.silent, this.#lost("silent", sentence)),
      echo: (ms) => options.onEcho?.(ms),
      progress: [
        () => (this.pendingBytes === 0 ? undefined : this.#writer.batchesTaken),
        () => this.acknowledgedOffset?.(),
      ],
    });
    // It was closed between the upgrade and now, and ws does not emit its event again.
    if (ws.readyState === ws.CLOSED) queueMicrotask(() => this.#onClose(ABNORMAL_CLOSURE, Buffer.alloc(0)));
  }

  /** Takes the place of ws's own listener on the socket. Where that cannot be, ws delivers everything as messages. */
  #readFrames(): void {
    const taken = takeDataListener(this.#socket, (chunk) => {
      this.lastByteAt = performance.now();
      this.#parser?.push(chunk);
      if (!this.#isOpen) this.#waitForClose();
    });
    if (taken === undefined) return;
    this.#readRest = taken.readRest;
    this.#parser = new FrameParser(this.#options.role === "server", {
      onPayload: this.#onPayload,
      onPing: this.#onPing,
      onText: (text) => this.#control.push(text),
      onClose: (payload) => setImmediate(this.#onCloseFrame, payload), // ws may refuse the frame first
      onOther: (bytes) => {
        this.#flushControl(); // ws may answer with a close frame
        taken.toWs(bytes);
      },
      onViolation: (sentence) => {
        this.fail(CloseCode.protocolError, sentence, `${LINK_ENDED}: ${sentence}`);
        this.#socket.pause(); // nothing is read until the close timeout
      },
    });
    this.#socket.once(PEER_GONE, this.#onPeerGone);
  }

  /** Sets the time between pings, ms: the smaller of both ends' values, known after the handshake. */
  setKeepalive(keepaliveMs: number): void {
    if (!this.#ended) this.#liveness.setInterval(keepaliveMs);
  }

  /** Sends a ping now; without a byte from the peer within `withinMs` the carrier is lost. */
  probe(withinMs: number): void {
    if (!this.#ended) this.#liveness.probe(withinMs);
  }

  /**
   * The listener of control messages. Messages that came without a listener are delivered to the next one, in order.
   */
  set onControl(listener: ((message: ControlMessage) => void) | undefined) {
    this.#control.listener = listener;
  }

  // ── out ────────────────────────────────────────────────────────────────────────────────────────────────────────

  get pendingBytes(): number {
    return this.#writer.pendingBytes;
  }

  wholeRecords(at: number, most: number): number {
    return this.#writer.wholeRecords(at, most);
  }

  get #isOpen(): boolean {
    return this.#ws.readyState === this.#ws.OPEN;
  }

  write(batch: readonly Buffer[], byteLength: number): void {
    if (!this.#ended && this.#isOpen) this.#writer.write(batch, byteLength);
  }

  /** The message goes out in one write with the payload that is written next, or at the end of this tick. */
  sendControl(message: ControlMessage): void {
    if (!this.#isOpen) return;
    if (this.#writer.queueControl(message)) process.nextTick(this.#flushControl);
    if (this.#writer.unreadControlBytes > MAX_UNREAD_CONTROL_BYTES) {
      this.fail(CloseCode.badControl, "the peer reads no answers");
    }
  }

  readonly #flushControl = (): void => {
    if (this.#isOpen) this.#writer.flushControl();
  };

  // ── in ─────────────────────────────────────────────────────────────────────────────────────────────────────────

  start(consumer: TransportConsumer): void {
    this.#consumer = consumer;
    // Not at once: the constructor that calls this has not returned yet. No chunk can come in between.
    queueMicrotask(() => {
      const early = this.#early ?? [];
      this.#early = undefined;
      for (const piece of early) consumer.onBytes(piece);
      if (this.#ended) consumer.onClosed(this.#failure);
    });
  }

  readonly #onPayload = (piece: Buffer): void => {
    if (this.#ended) return;
    if (this.#early === undefined) {
      this.#consumer?.onBytes(piece);
      return;
    }
    this.#earlyBytes += piece.length + EARLY_PIECE_BYTES;
    if (this.#earlyBytes <= MAX_EARLY_BYTES[this.#options.role]) this.#early.push(piece);
    else this.fail(CloseCode.badHello, "too much payload before the handshake");
  };

  /**
   * A ping of the WebSocket protocol, which some middlebox sends; ours are text. If pings come faster than pongs leave,
   * only the newest is answered (RFC 6455 §5.5.3).
   */
  readonly #onPing = (payload: Buffer): void => {
    this.#nextPong = payload;
    if (!this.#ponging) this.#pong();
  };

  #pong(): void {
    const payload = this.#nextPong;
    this.#nextPong = undefined;
    this.#ponging = payload !== undefined && this.#isOpen;
    if (this.#ponging) this.#ws.pong(payload, this.#options.role === "client", () => this.#pong());
  }

  readonly #onMessage = (data: RawData, isBinary: boolean): void => {
    if (this.#ended) return;
    this.lastByteAt = performance.now();
    if (isBinary) this.#onPayload(data as Buffer);
    else this.#control.push(data as Buffer);
  };

  // ── the end ────────────────────────────────────────────────────────────────────────────────────────────────────

  end(): void {
    this.#ending = true;
    this.close(CloseCode.normal, LINK_ENDED, END_TIMEOUT_MS);
  }

  /** Closes as `close` does, and waits for 100 ms only. */
  abandon(code: number, reason: string): void {
    this.close(code, reason, ABANDON_TIMEOUT_MS);
  }

  /** Closes with a code and a reason, after all that was written. The peer has `timeoutMs` to answer. */
  close(code: number, reason: string, timeoutMs = CLOSE_TIMEOUT_MS): void {
    this.#waitForClose();
    this.#flushControl();
    if (this.#isOpen) this.#ws.close(code, printable(reason, MAX_CLOSE_REASON));
    if (!this.#socket.closed) this.#cutAfter(timeoutMs);
  }

  #cutAfter(timeoutMs: number): void {
    clearTimeout(this.#cutTimer);
    this.#cutTimer = setTimeout(() => this.#ws.terminate(), timeoutMs);
    this.#options.onClosing?.();
  }

  destroy(reason?: Error): void {
    this.#failure ??= reason;
    this.#ws.terminate();
  }

  /** Ends for our side now and tells the peer why: `publicReason`, if that differs. */
  fail(code: number, sentence: string, publicReason = sentence): void {
    this.#endFor(code, new PeerViolation(sentence, code), publicReason);
  }

  #endFor(code: number, failure: Error, publicReason = failure.message): void {
    if (this.#ended) return;
    this.#failure ??= failure;
    this.close(code, publicReason);
    this.#finish();
  }

  /** ws has found a violation, closes with the right code and reads no more. */
  readonly #onError = (error: Error): void => {
    this.fail(CloseCode.protocolError, error.message);
    this.#parser = undefined;
    this.#socket.resume(); // otherwise the end of the peer's bytes is never read
  };

  /** The connection was cut, and the socket closes only some time later. */
  readonly #onPeerGone = (error: NodeJS.ErrnoException | undefined): void => {
    this.#socketError ??= error;
    this.#readRest();
    this.#onClose(ABNORMAL_CLOSURE, Buffer.alloc(0));
  };

  /** From now on the carrier waits for the close event of ws, which has the code and the reason. */
  #waitForClose(): void {
    this.#socket.off(PEER_GONE, this.#onPeerGone);
  }

  readonly #onClose = (code: number, reason: Buffer): void => {
    const words = printable(reason.toString("utf8"), MAX_CLOSE_REASON);
    const how = { socketError: this.#socketError, wasEnding: this.#ending, role: this.#options.role };
    this.#failure ??= explainClose({ code, reason: words, ...how }, (cause, sentence) => this.#lost(cause, sentence));
    this.#finish();
  };

  /**
   * The peer sends and reads nothing more (RFC 6455 §5.5.1), even if it leaves TCP open. If we have closed first, ws
   * says when the peer has taken everything.
   */
  readonly #onCloseFrame = (payload: Buffer): void => {
    if (this.#ended || this.#cutTimer !== undefined || this.#isOpen) return;
    this.#cutAfter(CLOSE_TIMEOUT_MS);
    const { code, reason } = readClose(payload);
    this.#onClose(code, reason);
  };

  #lost(lossCause: LossCause, sentence: string): CarrierLost {
    const now = performance.now();
    const times = { ageMs: now - this.#startedAt, idleMs: now - this.lastByteAt };
    return new CarrierLost(sentence, { lossCause, ...times, cause: this.#socketError });
  }

  #finish(): void {
    if (this.#ended) return;
    this.#ended = true;
    this.#control.stop();
    this.#liveness.stop();
    this.onEnded?.(this.#failure);
    if (this.#early === undefined) this.#consumer?.onClosed(this.#failure);
  }
}

/** The parts of a carrier that a link uses. */
export type LinkCarrier = Omit<Carrier, "onEnded" | "setKeepalive" | "fail" | "destroy">;
