import { isUtf8 } from "node:buffer";
import type { Duplex } from "node:stream";
import { wholeRecords, xorInPlace } from "../basics/bytes.ts";
import type { ControlMessage } from "./control.ts";

// RFC 6455 §5.2: the first two bytes of a frame.
const FIN = 0x80;
const RESERVED = 0x70;
const OPCODE = 0x0f;
const MASKED = 0x80;
const LENGTH = 0x7f;
const CONTINUATION = 0x0;
const TEXT = 0x1;
const BINARY = 0x2;
const FIRST_CONTROL = 0x8;
const CLOSE = 0x8;
const PING = 0x9;
const PONG = 0xa;
const OPCODES: ReadonlySet<number> = new Set([CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG]);
/** 2 bytes, 8 of extended length, 4 of mask key. */
const MAX_HEADER = 14;
/** Maximum length of a control frame (RFC 6455 §5.5), and of a text that is read here: what one byte can say. */
const MAX_SHORT = 125;

// ── out ─────────────────────────────────────────────────────────────────────────────────────────────────────────────

/** Maximum length of a binary message with its header, unless one buffer is longer: four TLS records. */
const MESSAGE_BYTES = 64 * 1024;
/** Many frames of a few bytes: one copy costs less than handing each buffer to the socket. */
export const SMALL_BATCH_BYTES = 8 * 1024;

/**
 * Writes the frames of one carrier straight to its socket. ws writes whole frames at once too, so frames never mix
 * (docs/decisions/0003-payload-passes-by-ws.md).
 */
export class FrameWriter {
  readonly #socket: Duplex;
  /** Clients mask (RFC 6455 §5.1), with a key of zero. */
  readonly #masked: boolean;
  /** Length of the header of a long message. */
  readonly #headerBytes: number;
  /** Control messages of this tick, framed, which go with the next payload or at the end of the tick. */
  #control: Buffer[] = [];
  #controlBytes = 0;
  /** Called when the socket has taken a batch. */
  readonly #onTaken: () => void;
  /** Payload bytes that the socket has not taken yet. */
  pendingBytes = 0;
  /** How many batches the socket has taken. */
  batchesTaken = 0;

  constructor(socket: Duplex, masked: boolean, onTaken: () => void) {
    this.#socket = socket;
    this.#masked = masked;
    this.#onTaken = onTaken;
    this.#headerBytes = frameHeader(BINARY, MESSAGE_BYTES - 1, masked).length;
  }

  /** Bytes of control messages that the peer leaves unread. */
  get unreadControlBytes(): number {
    return this.#socket.writableLength - this.pendingBytes + this.#controlBytes;
  }

  wholeRecords(at: number, most: number): number {
    const inMessage = MESSAGE_BYTES - this.#headerBytes;
    const from = at % inMessage;
    return wholeRecords(this.#headerBytes + from, Math.min(most, inMessage - from));
  }

  write(batch: readonly Buffer[], byteLength: number): void {
    this.pendingBytes += byteLength;
    const taken = (): void => {
      this.pendingBytes -= byteLength;
      this.batchesTaken++;
      this.#onTaken();
    };
    if (byteLength > SMALL_BATCH_BYTES) this.#writeMessages(batch, taken);
    else {
      const header = frameHeader(BINARY, byteLength, this.#masked);
      this.#socket.write(Buffer.concat([...this.#takeControl(), header, ...batch]), taken);
    }
  }

  #writeMessages(batch: readonly Buffer[], taken: () => void): void {
    const socket = this.#socket;
    socket.cork();
    this.flushControl();
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

  /** Queues a message until `flushControl` or the next payload. Returns whether it is the first one in the queue. */
  queueControl(message: ControlMessage): boolean {
    const text = Buffer.from(JSON.stringify(message));
    const header = frameHeader(TEXT, text.length, this.#masked);
    const isFirst = this.#controlBytes === 0;
    this.#control.push(header, text);
    this.#controlBytes += header.length + text.length;
    return isFirst;
  }

  flushControl(): void {
    if (this.#controlBytes > 0) this.#socket.write(Buffer.concat(this.#takeControl()));
  }

  #takeControl(): readonly Buffer[] {
    const frames = this.#control;
    if (this.#controlBytes === 0) return frames;
    this.#control = [];
    this.#controlBytes = 0;
    return frames;
  }
}

/** The header of a message in one frame; with a mask key of zero for a client (RFC 6455 §5.3). */
export function frameHeader(opcode: number, length: number, masked: boolean): Buffer {
  const lengthBytes = length < 126 ? 0 : length < 0x1_0000 ? 2 : 8;
  const header = Buffer.allocUnsafe(2 + lengthBytes + (masked ? 4 : 0));
  header[0] = FIN | opcode;
  header[1] = (masked ? MASKED : 0) | (lengthBytes === 0 ? length : lengthBytes === 2 ? 126 : 127);
  if (lengthBytes === 2) header.writeUInt16BE(length, 2);
  if (lengthBytes === 8) header.writeBigUInt64BE(BigInt(length), 2);
  if (masked) header.writeUInt32BE(0, header.length - 4);
  return header;
}

// ── in ──────────────────────────────────────────────────────────────────────────────────────────────────────────────

/** Receives the frames that a `FrameParser` finds. */
interface FrameHandler {
  /** A piece of binary payload, in order. */
  onPayload(piece: Buffer): void;
  /** A ping (RFC 6455 §5.5.2), with its payload. */
  onPing(payload: Buffer): void;
  /** A close frame (RFC 6455 §5.5.1) has passed to ws whole; this was its payload. Nothing follows it. */
  onClose(payload: Buffer): void;
  /** A text message of at most 125 bytes, which is UTF-8. Acks are such messages, and they come 200 times a second. */
  onText(text: Buffer): void;
  /** Bytes for ws: whole frames of other kinds, in any split. */
  onOther(bytes: Buffer): void;
  /** Something that ws would not notice: a message inside a binary one, a frame too long, a flood. Nothing follows. */
  onViolation(sentence: string): void;
}

const EMPTY = Buffer.alloc(0);
/** Maximum length of a binary frame, bytes. Nothing of it is kept. */
const MAX_PAYLOAD = 16 * 1024 * 1024;
/** A frame with less payload carries little. A middlebox may split some; the headers of a flood cost all of a core. */
const LITTLE_BYTES = 64;
/**
 * Maximum number of frames that carry no payload in a second. A middlebox may send pings, or end each message with an
 * empty fragment, which costs 1 or 2 % of a core; a flood costs all of it.
 */
const MAX_IDLE_FRAMES = 20_000;
/** A frame without payload counts as this many that carry little: an honest peer sends one for each write at most. */
const IDLE_WEIGHT = 5;
const MAX_WEIGHT = IDLE_WEIGHT * MAX_IDLE_FRAMES;
const FLOOD = `more than ${MAX_IDLE_FRAMES} frames a second carry no payload, or ${MAX_WEIGHT} less than ${LITTLE_BYTES} bytes`;

/**
 * Reads WebSocket frames (RFC 6455 §5.2) from the bytes of a socket as they arrive. It delivers the payload of binary
 * frames, pings and short texts, and passes every other byte to ws, which verifies and answers it; a close frame goes
 * both ways.
 *
 * ws copies each message together before it delivers it and stops its socket after every TLS record, which is more than
 * a fifth of the cost of receiving (docs/decisions/0003-payload-passes-by-ws.md). The session reads bytes in any split.
 */
export class FrameParser {
  readonly #consumer: FrameHandler;
  /** The peer is a client, which masks (RFC 6455 §5.1). */
  readonly #peerMasks: boolean;
  readonly #header = Buffer.allocUnsafeSlow(MAX_HEADER);
  #headerLength = 0;
  /** Payload bytes of the present frame still to come. */
  #left = 0;
  #isPayload = false;
  /** The payload of the present ping, close or short text, as far as it has arrived, and which of them it is. */
  #short: Buffer | undefined;
  #shortKind: typeof PING | typeof TEXT | typeof CLOSE = PING;
  /** The weight of frames with no or little payload since `#idleSince`, on the clock of `performance.now()`. */
  #idleWeight = 0;
  #idleSince = Number.NEGATIVE_INFINITY;
  /** The kind of the fragmented message under way. */
  #fragmented: "none" | "binary" | "other" = "none";
  /** The mask key rotated to the next payload byte; `undefined` when it is zero. */
  #mask: Uint8Array | undefined;
  #maskAt = 0;
  #state: "open" | "to-ws" | "stopped" = "open";

  constructor(peerMasks: boolean, consumer: FrameHandler) {
    this.#peerMasks = peerMasks;
    this.#consumer = consumer;
  }

  push(chunk: Buffer): void {
    let offset = 0;
    while (offset < chunk.length && this.#state === "open") {
      offset = this.#left > 0 ? this.#takePayload(chunk, offset) : this.#takeHeader(chunk, offset);
    }
    if (this.#state === "to-ws" && offset < chunk.length) this.#consumer.onOther(chunk.subarray(offset));
  }

  #takePayload(chunk: Buffer, offset: number): number {
    const end = Math.min(chunk.length, offset + this.#left);
    const piece = offset === 0 && end === chunk.length ? chunk : chunk.subarray(offset, end);
    this.#left -= piece.length;
    if ((this.#isPayload || this.#short !== undefined) && this.#mask !== undefined) {
      xorInPlace(piece, this.#mask, this.#maskAt); // RFC 6455 §5.3
      this.#maskAt = (this.#maskAt + piece.length) & 3;
    }
    if (this.#isPayload) this.#consumer.onPayload(piece);
    else if (this.#short !== undefined) this.#takeShort(this.#short, piece);
    else this.#consumer.onOther(piece);
    return end;
  }

  #takeShort(before: Buffer, piece: Buffer): void {
    const payload = before.length === 0 ? piece : Buffer.concat([before, piece]);
    this.#short = this.#left > 0 ? payload : undefined;
    if (this.#left > 0) return;
    if (this.#shortKind === PING) this.#consumer.onPing(payload);
    else if (this.#shortKind === CLOSE) {
      this.#state = "stopped";
      this.#passShort(CLOSE, payload);
      this.#consumer.onClose(payload);
    } else if (isUtf8(payload)) this.#consumer.onText(payload);
    else this.#passShort(TEXT, payload);
  }

  /** Passes a short frame to ws, which answers it. */
  #passShort(opcode: typeof TEXT | typeof CLOSE, payload: Buffer): void {
    this.#consumer.onOther(frameHeader(opcode, payload.length, this.#peerMasks));
    if (payload.length > 0) this.#consumer.onOther(payload);
  }

  #takeHeader(chunk: Buffer, offset: number): number {
    const known = this.#headerLength;
    const copied = chunk.copy(this.#header, known, offset, Math.min(chunk.length, offset + MAX_HEADER - known));
    const have = known + copied;
    const need = have < 2 ? 2 : headerLength(this.#header);
    if (have < need) {
      this.#headerLength = have;
      return offset + copied;
    }
    this.#headerLength = 0;
    this.#onHeader(need);
    return offset + need - known;
  }

  #onHeader(length: number): void {
    const first = this.#header[0] as number;
    const opcode = first & OPCODE;
    const final = (first & FIN) !== 0;
    this.#left = payloadLength(this.#header);
    this.#isPayload = opcode === BINARY || (opcode === CONTINUATION && this.#fragmented === "binary");
    const isIdle = !this.#isPayload || this.#left === 0;
    if ((isIdle || this.#left < LITTLE_BYTES) && this.#isFlood(isIdle ? IDLE_WEIGHT : 1)) {
      this.#stop(FLOOD);
    } else if (opcode < FIRST_CONTROL && opcode !== CONTINUATION && this.#fragmented === "binary") {
      this.#stop("a message begins inside another");
    } else if (this.#isPayload && this.#left > MAX_PAYLOAD) {
      this.#stop(`a frame of ${this.#left} bytes is too long`);
    } else if (!this.#isWellFormed(first)) {
      // The length of a malformed frame means nothing, nor do the bytes after it.
      this.#state = "to-ws";
      this.#passHeader(length);
    } else if (this.#isPayload) {
      this.#fragmented = final ? "none" : "binary";
      this.#readMask(length);
    } else if (final && isShort(opcode, this.#left)) {
      this.#readMask(length);
      this.#shortKind = opcode as typeof PING | typeof TEXT | typeof CLOSE;
      this.#takeShort(EMPTY, EMPTY);
    } else {
      if (opcode < FIRST_CONTROL) this.#fragmented = final ? "none" : "other";
      this.#passHeader(length);
    }
  }

  /** Counts a frame with no or little payload. The clock is read once in `MAX_WEIGHT`. */
  #isFlood(weight: number): boolean {
    this.#idleWeight += weight;
    if (this.#idleWeight <= MAX_WEIGHT) return false;
    const now = performance.now();
    const isFlood = now - this.#idleSince < 1_000;
    this.#idleWeight = 0;
    this.#idleSince = now;
    return isFlood;
  }

  #passHeader(length: number): void {
    this.#consumer.onOther(Buffer.from(this.#header.subarray(0, length)));
  }

  /** A malformed frame goes to ws, which closes with the right code. */
  #isWellFormed(first: number): boolean {
    if ((first & RESERVED) !== 0 || !OPCODES.has(first & OPCODE)) return false;
    if ((((this.#header[1] as number) & MASKED) !== 0) !== this.#peerMasks) return false;
    const opcode = first & OPCODE;
    if (opcode === CONTINUATION) return this.#fragmented !== "none";
    return opcode >= FIRST_CONTROL || this.#fragmented === "none";
  }

  #readMask(length: number): void {
    if (!this.#peerMasks || this.#header.readUInt32BE(length - 4) === 0) {
      this.#mask = undefined;
      return;
    }
    this.#mask = Uint8Array.from(this.#header.subarray(length - 4, length));
    this.#maskAt = 0;
  }

  #stop(sentence: string): void {
    this.#state = "stopped";
    this.#consumer.onViolation(sentence);
  }
}

/** Whether the frame is read here once it is complete. */
function isShort(opcode: number, length: number): boolean {
  return length <= MAX_SHORT && (opcode === TEXT || opcode === PING || opcode === CLOSE);
}

function headerLength(header: Buffer): number {
  const second = header[1] as number;
  const short = second & LENGTH;
  return 2 + (short === 126 ? 2 : short === 127 ? 8 : 0) + ((second & MASKED) !== 0 ? 4 : 0);
}

function payloadLength(header: Buffer): number {
  const short = (header[1] as number) & LENGTH;
  if (short < 126) return short;
  if (short === 126) return header.readUInt16BE(2);
  return header.readUInt32BE(2) * 2 ** 32 + header.readUInt32BE(6);
}
