import type { Duplex } from "node:stream";
import type { RawData, WebSocket } from "ws";
import type { TurnQueue } from "../basics/turn-queue.ts";
import { PEER_GONE } from "../listen/departures.ts";
import { takeDataListener } from "../node/http.ts";
import { printable } from "../outcomes.ts";
import { wholeRecords } from "../tls/tls-records.ts";
import { CloseCode } from "../wire/handshake.ts";
import type { Transport, TransportConsumer } from "../yamux/transport.ts";
import {
  ABNORMAL_CLOSURE,
  CarrierLost,
  type Closed,
  judgeClose,
  LINK_ENDED,
  type LossCause,
  PeerViolation,
} from "./carrier-end.ts";
import { BadControlMessage, type ControlMessage, MAX_CONTROL_BYTES, parseControl } from "./control.ts";
import { ControlRate } from "./control-rate.ts";
import { Liveness } from "./liveness.ts";
import { BINARY, frameHeader, PayloadLane } from "./payload-lane.ts";
import { WaitingControl } from "./waiting-control.ts";

/** One binary message is at most so long with its header, four TLS records, unless one buffer is larger. */
const MESSAGE_BYTES = 64 * 1024;
/** A batch up to this goes out as one buffer. */
const SMALL_BATCH_BYTES = 8 * 1024;
/** A peer may send larger messages than we do, but not much: nothing is kept of them anyway. */
const MAX_MESSAGE_BYTES = 16 * 1024 * 1024;
/**
 * Bounds to give ws, for long text only, since all else passes by it. Each fragment and each piece of a message that has
 * not come whole keeps the read alive that it came in, or costs some 350 bytes.
 */
export const WEBSOCKET_BOUNDS = { maxPayload: 128 * 1024, maxFragments: 64, maxBufferedChunks: 1_024 } as const;
/**
 * What may arrive before `start`, bytes: from a server a window of each stream; from an agent the beginning of an inner TLS,
 * while nobody knows whose it is. Each piece counts as so much more, because small ones cost most.
 */
const MAX_EARLY_BYTES = { client: 1024 * 1024, server: 64 * 1024 } as const;
const EARLY_PIECE_BYTES = 256;
/** Control messages kept for a listener that is not there yet. */
const MAX_EARLY_CONTROL = 8;
/** A peer that does not answer our close frame is cut after this. */
const CLOSE_TIMEOUT_MS = 2_000;
/** The same of a link that was given up. */
const ABANDON_TIMEOUT_MS = 100;
/** The same when all that we wrote is still to be delivered: a slow path needs its time. */
const END_TIMEOUT_MS = 10_000;
/** Answers and pings that a peer may leave unread: one that asks and never reads would grow our socket's buffer. */
const MAX_UNREAD_CONTROL_BYTES = 256 * 1024;

/** RFC 6455 §7.1.5: a close frame without a code. */
const NO_CODE = 1005;
/** RFC 6455 §5.5: a control frame holds 125 bytes, two of them the code. */
const MAX_CLOSE_REASON = 123;

export interface CarrierOptions {
  /** Which end of the WebSocket we are: clients mask. */
  readonly role: "client" | "server";
  /** Milliseconds between pings; silence of 2.5 times as much is death. */
  readonly keepaliveMs: number;
  /** Told how long each ping took to be answered, ms. */
  readonly onEcho?: ((ms: number) => void) | undefined;
  /** When the first message is read: thousands may say hello at once. Absent: at once. */
  readonly turns?: TurnQueue | undefined;
}

/**
 * One WebSocket connection as a transport: binary messages are payload, text messages are control (design: "Carrier").
 *
 * ws does the handshake, pongs, long text and closing; binary frames, and text that we write or that is short, pass by it
 * on the socket that it was given.
 */
export class Carrier implements Omit<Transport, "room"> {
  /** Why the carrier ended, for whoever has not started it. Set before the consumer hears of it. */
  onEnded: ((reason: Error | undefined) => void) | undefined;
  /** How many bytes of the link the peer has acknowledged; `undefined`: all of them. For its owner to set. */
  acknowledged: (() => number | undefined) | undefined;
  readonly #ws: WebSocket;
  readonly #socket: Duplex;
  readonly #role: CarrierOptions["role"];
  /** Clients mask (RFC 6455 §5.1). */
  readonly #masked: boolean;
  /** Bytes of a long message's header. */
  readonly #headerBytes: number;
  readonly #liveness: Liveness;
  readonly #openedAt = performance.now();
  #lane: PayloadLane | undefined;
  #readRest = (): void => {};
  #consumer: TransportConsumer | undefined;
  /** Payload that came before delivery began; `undefined` from then on. */
  #early: Buffer[] | undefined = [];
  #earlyBytes = 0;
  #onControl: ((message: ControlMessage) => void) | undefined;
  #earlyControl: ControlMessage[] = [];
  #pendingBytes = 0;
  #writesTaken = 0;
  readonly #waiting: WaitingControl;
  #failure: Error | undefined;
  #socketError: NodeJS.ErrnoException | undefined;
  /** A pong waits for the socket, and so does the payload of the newest ping that came meanwhile. */
  #ponging = false;
  #nextPong: Buffer | undefined;
  #ended = false;
  #ending = false;
  #cutTimer: NodeJS.Timeout | undefined;
  /** Until the first message has been read. */
  #turns: TurnQueue | undefined;
  /** Messages that came before that, the first among them. */
  #unread: Buffer[] = [];
  readonly #rate = new ControlRate();

  constructor(ws: WebSocket, socket: Duplex, options: CarrierOptions) {
    this.#ws = ws;
    this.#socket = socket;
    this.#role = options.role;
    this.#masked = options.role === "client";
    this.#waiting = new WaitingControl(this.#masked);
    this.#headerBytes = frameHeader(BINARY, MESSAGE_BYTES - 1, this.#masked).length;
    this.#turns = options.turns;
    ws.on("message", this.#onMessage);
    ws.on("error", this.#onError);
    ws.on("close", this.#onClose);
    socket.on("error", this.#onSocketError);
    socket.once("close", this.#onSocketClose);
    this.#openLane();
    this.#liveness = new Liveness(options.keepaliveMs, {
      ping: () => this.sendControl({ type: "ping" }),
      dead: (sentence) => this.#endFor(CloseCode.silent, this.#lost("silent", sentence)),
      echo: (ms) => options.onEcho?.(ms),
      progress: [() => (this.#pendingBytes === 0 ? undefined : this.#writesTaken), () => this.acknowledged?.()],
    });
    // Closed between the upgrade and now: ws has said so already and will not again.
    if (ws.readyState === ws.CLOSED) queueMicrotask(() => this.#onClose(ABNORMAL_CLOSURE, Buffer.alloc(0)));
  }

  /** Payload passes by ws. Where that cannot be, ws delivers everything as messages. */
  #openLane(): void {
    const taken = takeDataListener(this.#socket, (chunk) => {
      this.#liveness.heard();
      this.#lane?.push(chunk);
      if (this.#ws.readyState !== this.#ws.OPEN) this.#waitForClose();
    });
    if (taken === undefined) return;
    this.#readRest = taken.readRest;
    this.#lane = new PayloadLane(
      {
        onPayload: this.#onPayload,
        onPing: this.#onPing,
        onText: this.#onText,
        onClose: (payload) => setImmediate(this.#onCloseFrame, payload), // ws may have an objection first
        onOther: (bytes) => {
          this.#writeWaiting(); // ws may answer with the end
          taken.toWs(bytes);
        },
        onViolation: (sentence) => {
          this.#fail(CloseCode.protocolError, sentence, `${LINK_ENDED}: ${sentence}`);
          this.#socket.pause(); // it is cut when its time is over; until then nothing is read
        },
      },
      { peerMasks: !this.#masked, maxPayload: MAX_MESSAGE_BYTES },
    );
    this.#socket.once(PEER_GONE, this.#onPeerGone);
  }

  /** Milliseconds between pings; the smaller of both ends' wishes, known after the handshake. */
  setKeepalive(keepaliveMs: number): void {
    if (!this.#ended) this.#liveness.setInterval(keepaliveMs);
  }

  /** Asks for a sign of life now; without one within `withinMs` the carrier is lost. */
  probe(withinMs: number): void {
    if (!this.#ended) this.#liveness.probe(withinMs);
  }

  get onControl(): ((message: ControlMessage) => void) | undefined {
    return this.#onControl;
  }

  /** Messages that came while nobody listened are delivered to the next listener, in order. */
  set onControl(listener: ((message: ControlMessage) => void) | undefined) {
    this.#onControl = listener;
    if (listener === undefined || this.#earlyControl.length === 0) return;
    queueMicrotask(() => {
      for (const message of this.#earlyControl.splice(0)) this.#deliverControl(message);
    });
  }

  // ── out ────────────────────────────────────────────────────────────────────────────────────────────────────────

  get pendingBytes(): number {
    return this.#pendingBytes;
  }

  wholeRecords(at: number, most: number): number {
    const inMessage = MESSAGE_BYTES - this.#headerBytes;
    const from = at % inMessage;
    return wholeRecords(this.#headerBytes + from, Math.min(most, inMessage - from));
  }

  write(batch: readonly Buffer[], byteLength: number): void {
    if (this.#ended || this.#ws.readyState !== this.#ws.OPEN) return;
    this.#pendingBytes += byteLength;
    const taken = (): void => {
      this.#pendingBytes -= byteLength;
      this.#writesTaken++;
      if (!this.#ended) this.#consumer?.onWritable();
    };
    if (byteLength <= SMALL_BATCH_BYTES) this.#writeSmall(batch, byteLength, taken);
    else this.#writeMessages(batch, taken);
  }

  /** Many frames of a few bytes each: one copy costs less than handing each buffer to the kernel apart. */
  #writeSmall(batch: readonly Buffer[], byteLength: number, taken: () => void): void {
    this.#socket.write(
      Buffer.concat([...this.#waiting.take(), frameHeader(BINARY, byteLength, this.#masked), ...batch]),
      taken,
    );
  }

  /** Straight to the socket, in one corked write; ws writes whole frames at once too, so frames never mix. */
  #writeMessages(batch: readonly Buffer[], taken: () => void): void {
    const socket = this.#socket;
    socket.cork();
    this.#writeWaiting();
    let from = 0;
    while (from < batch.length) {
      let length = (batch[from] as Buffer).length;
      let to = from + 1;
      for (; to < batch.length; to++) {
        const longer = length + (batch[to] as Buffer).length;
        if (longer > MESSAGE_BYTES - this.#headerBytes) break;
        length = longer;
      }
      socket.write(frameHeader(BINARY, length, this.#masked));
      for (; from < to; from++) {
        if (from === batch.length - 1) socket.write(batch[from], taken);
        else socket.write(batch[from]);
      }
    }
    socket.uncork();
  }

  /** In one write with the payload that is written next, or alone at the end of this tick. */
  sendControl(message: ControlMessage): void {
    if (this.#ws.readyState !== this.#ws.OPEN) return;
    if (this.#waiting.bytes === 0) process.nextTick(this.#writeWaiting);
    this.#waiting.add(message);
    const unread = this.#socket.writableLength - this.#pendingBytes + this.#waiting.bytes;
    if (unread > MAX_UNREAD_CONTROL_BYTES) this.#fail(CloseCode.badControl, "the peer reads no answers");
  }

  readonly #writeWaiting = (): void => {
    const frames = this.#waiting.take();
    if (frames.length > 0 && this.#ws.readyState === this.#ws.OPEN) this.#socket.write(Buffer.concat(frames));
  };

  // ── in ─────────────────────────────────────────────────────────────────────────────────────────────────────────

  start(consumer: TransportConsumer): void {
    this.#consumer = consumer;
    // Not from inside the constructor that calls this: its owner has nothing in hand yet. No chunk can come between.
    queueMicrotask(() => {
      const early = this.#early ?? [];
      this.#early = undefined;
      for (const piece of early) consumer.onBytes(piece);
      if (this.#ended) consumer.onClosed(this.#failure);
    });
  }

  readonly #onPayload = (piece: Buffer): void => {
    if (this.#ended) return;
    if (this.#early === undefined) this.#consumer?.onBytes(piece);
    else this.#keepEarly(this.#early, piece);
  };

  /** Not ours, which are text: some box's. Of those that come faster than answers leave, the newest is answered (RFC 6455 §5.5.3). */
  readonly #onPing = (payload: Buffer): void => {
    if (this.#ponging) {
      this.#nextPong = payload;
      return;
    }
    if (this.#ws.readyState !== this.#ws.OPEN) return;
    this.#ponging = true;
    this.#ws.pong(payload, this.#masked, () => {
      this.#ponging = false;
      const next = this.#nextPong;
      this.#nextPong = undefined;
      if (next !== undefined) this.#onPing(next);
    });
  };

  #keepEarly(early: Buffer[], piece: Buffer): void {
    this.#earlyBytes += piece.length + EARLY_PIECE_BYTES;
    if (this.#earlyBytes > MAX_EARLY_BYTES[this.#role])
      this.#fail(CloseCode.badHello, "too much payload before the handshake");
    else early.push(piece);
  }

  readonly #onMessage = (data: RawData, isBinary: boolean): void => {
    if (this.#ended) return;
    this.#liveness.heard();
    if (isBinary) this.#onPayload(data as Buffer);
    else this.#onText(data as Buffer);
  };

  readonly #onText = (text: Buffer): void => {
    if (this.#ended) return;
    if (this.#turns === undefined) this.#readControl(text);
    else this.#readInTurn(text, this.#turns);
  };

  #readInTurn(text: Buffer, turns: TurnQueue): void {
    this.#unread.push(text);
    if (this.#unread.length > MAX_EARLY_CONTROL) this.#fail(CloseCode.badControl, "too many messages before an answer");
    if (this.#unread.length > 1) return;
    turns.run(() => {
      this.#turns = undefined;
      for (const each of this.#unread.splice(0)) this.#readControl(each);
    });
  }

  #readControl(text: Buffer): void {
    if (this.#ended) return;
    try {
      if (text.length > MAX_CONTROL_BYTES) throw new BadControlMessage("a control message is too long");
      const message = parseControl(text.toString("utf8"));
      if (message?.type === "ack") this.#rate.countAck();
      else this.#rate.count();
      if (message?.type === "ping") this.sendControl({ type: "pong" });
      else if (message?.type === "pong") this.#liveness.answered();
      else if (message !== undefined) this.#deliverControl(message);
    } catch (error) {
      if (!(error instanceof BadControlMessage)) throw error;
      this.#fail(CloseCode.badControl, error.message);
    }
  }

  #deliverControl(message: ControlMessage): void {
    if (this.#onControl !== undefined) this.#onControl(message);
    else if (this.#earlyControl.length < MAX_EARLY_CONTROL) this.#earlyControl.push(message);
  }

  // ── the end ────────────────────────────────────────────────────────────────────────────────────────────────────

  end(): void {
    this.#ending = true;
    this.#close(CloseCode.normal, LINK_ENDED, END_TIMEOUT_MS);
  }

  /** Closes with a code and a reason that a person can act on; the peer has 2 s to take it. */
  close(code: number, reason: string): void {
    this.#close(code, reason, CLOSE_TIMEOUT_MS);
  }

  /** The same in a hurry: its owner waits for nothing. */
  abandon(code: number, reason: string): void {
    this.#close(code, reason, ABANDON_TIMEOUT_MS);
  }

  /** The close frame stands behind all that was written. */
  #close(code: number, reason: string, timeoutMs: number): void {
    this.#waitForClose();
    this.#writeWaiting();
    if (this.#ws.readyState === this.#ws.OPEN) this.#ws.close(code, printable(reason, MAX_CLOSE_REASON));
    if (this.#socket.closed) return;
    clearTimeout(this.#cutTimer);
    this.#cutTimer = setTimeout(() => this.#ws.terminate(), timeoutMs);
  }

  destroy(reason?: Error): void {
    this.#failure ??= reason;
    this.#ws.terminate();
  }

  /** Our side has seen something wrong: say so to the peer, and end now for our own. */
  #fail(code: number, sentence: string, told = sentence): void {
    this.#endFor(code, new PeerViolation(sentence, code), told);
  }

  #endFor(code: number, failure: Error, told = failure.message): void {
    if (this.#ended) return;
    this.#failure ??= failure;
    this.close(code, told);
    this.#finish();
  }

  /** ws has found a violation, closes with the right code and reads no more; nothing behind it counts. */
  readonly #onError = (error: Error): void => {
    this.#fail(CloseCode.protocolError, error.message);
    this.#lane = undefined;
    this.#socket.resume(); // or the peer's end would go unseen
  };

  readonly #onSocketError = (error: NodeJS.ErrnoException): void => {
    this.#socketError = error;
  };

  readonly #onSocketClose = (): void => clearTimeout(this.#cutTimer);

  /** It was cut, and the socket will only close some time later. */
  readonly #onPeerGone = (error: NodeJS.ErrnoException | undefined): void => {
    this.#socketError ??= error;
    this.#readRest();
    this.#onClose(ABNORMAL_CLOSURE, Buffer.alloc(0));
  };

  /** From now on there is more to be known of the end than that the peer has gone: ws tells it when the socket closes. */
  #waitForClose(): void {
    this.#socket.off(PEER_GONE, this.#onPeerGone);
  }

  readonly #onClose = (code: number, reason: Buffer): void => {
    const closed: Closed = {
      ...{ code, reason: printable(reason.toString("utf8"), MAX_CLOSE_REASON) },
      ...{ socketError: this.#socketError, wasEnding: this.#ending, role: this.#role },
    };
    this.#failure ??= judgeClose(closed, (cause, sentence) => this.#lost(cause, sentence));
    this.#finish();
  };

  /**
   * The peer sends nothing more, and reads nothing of what we would send (RFC 6455 §5.5.1); that it leaves TCP open
   * means nothing. Where we have closed first, ws says when it has taken everything.
   */
  readonly #onCloseFrame = (payload: Buffer): void => {
    if (this.#ended || this.#cutTimer !== undefined || this.#ws.readyState === this.#ws.OPEN) return;
    this.#cutTimer = setTimeout(() => this.#ws.terminate(), CLOSE_TIMEOUT_MS);
    const [code, reason] =
      payload.length < 2 ? [NO_CODE, payload.subarray(0, 0)] : [payload.readUInt16BE(0), payload.subarray(2)];
    this.#onClose(code, reason);
  };

  #lost(lossCause: LossCause, sentence: string): CarrierLost {
    const now = performance.now();
    const { lastByteAt, quietMs } = this.#liveness;
    const times = { ageMs: now - this.#openedAt, idleMs: now - lastByteAt, quietMs };
    return new CarrierLost(sentence, { lossCause, ...times, cause: this.#socketError });
  }

  #finish(): void {
    if (this.#ended) return;
    this.#ended = true;
    this.#liveness.stop();
    this.onEnded?.(this.#failure);
    if (this.#early === undefined) this.#consumer?.onClosed(this.#failure);
  }
}
