import { isUtf8 } from "node:buffer";
import { BINARY, CLOSE, frameHeader, TEXT } from "./frame-writer.ts";

/** What a `FrameParser` finds. */
export interface FrameHandler {
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
  /**
   * A violation that ws would not notice: a message inside a binary one, a frame that is too long, a flood. Nothing
   * follows.
   */
  onViolation(sentence: string): void;
}

const FIN = 0x80;
const RESERVED = 0x70;
const OPCODE = 0x0f;
const MASKED = 0x80;
const LENGTH = 0x7f;
const CONTINUATION = 0x0;
const FIRST_CONTROL = 0x8;
const PING = 0x9;
const PONG = 0xa;
const OPCODES: ReadonlySet<number> = new Set([CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG]);
/** 2 bytes, 8 of extended length, 4 of mask key. */
const MAX_HEADER = 14;
const EMPTY = Buffer.alloc(0);
/** RFC 6455 §5.5. */
const MAX_CONTROL = 125;
/** Maximum length of a text message that is read here, bytes: what a length of one byte can say. */
const MAX_TEXT = 125;
/**
 * Maximum number of frames without payload in a second. A middlebox may send pings, or end each message with an empty
 * fragment, which costs 1 or 2 % of a core; a flood costs all of it.
 */
const MAX_IDLE_FRAMES = 20_000;
const SECOND_MS = 1_000;

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
  readonly #maxPayload: number;
  readonly #header = Buffer.allocUnsafeSlow(MAX_HEADER);
  #headerLength = 0;
  /** Payload bytes of the present frame still to come. */
  #left = 0;
  #isPayload = false;
  /** The payload of the present ping, close or short text, as far as it has arrived, and which of them it is. */
  #short: Buffer | undefined;
  #shortKind: typeof PING | typeof TEXT | typeof CLOSE = PING;
  /** Frames without payload since `#idleSince`, on the clock of `performance.now()`. */
  #idleFrames = 0;
  #idleSince = Number.NEGATIVE_INFINITY;
  /** The kind of the fragmented message under way. */
  #fragmented: "none" | "binary" | "other" = "none";
  /** The mask key rotated to the next payload byte; `undefined` when it is zero. */
  #mask: Uint8Array | undefined;
  #maskAt = 0;
  #state: "open" | "to-ws" | "stopped" = "open";

  constructor(consumer: FrameHandler, bounds: { readonly peerMasks: boolean; readonly maxPayload: number }) {
    this.#consumer = consumer;
    this.#peerMasks = bounds.peerMasks;
    this.#maxPayload = bounds.maxPayload;
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
    if ((this.#isPayload || this.#short !== undefined) && this.#mask !== undefined) this.#unmask(piece, this.#mask);
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
    else if (this.#shortKind === CLOSE) this.#close(payload);
    else if (isUtf8(payload)) this.#consumer.onText(payload);
    else this.#passShort(TEXT, payload);
  }

  #close(payload: Buffer): void {
    this.#state = "stopped";
    this.#passShort(CLOSE, payload);
    this.#consumer.onClose(payload);
  }

  /** Passes a short frame to ws, which answers it. */
  #passShort(opcode: typeof TEXT | typeof CLOSE, payload: Buffer): void {
    this.#consumer.onOther(frameHeader(opcode, payload.length, this.#peerMasks));
    if (payload.length > 0) this.#consumer.onOther(payload);
  }

  #unmask(piece: Buffer, mask: Uint8Array): void {
    unmask(piece, mask, this.#maskAt);
    this.#maskAt = (this.#maskAt + piece.length) & 3;
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
    if ((!this.#isPayload || this.#left === 0) && this.#isFlood()) {
      this.#stop(`more than ${MAX_IDLE_FRAMES} frames a second carry no payload`);
    } else if (opcode < FIRST_CONTROL && opcode !== CONTINUATION && this.#fragmented === "binary") {
      this.#stop("a message begins inside another");
    } else if (this.#isPayload && this.#left > this.#maxPayload) {
      this.#stop(`a frame of ${this.#left} bytes is too long`);
    } else if (!this.#isWellFormed(first)) {
      // The length of a malformed frame means nothing, nor do the bytes behind it.
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

  /** Counts a frame without payload. The clock is read once in `MAX_IDLE_FRAMES`. */
  #isFlood(): boolean {
    this.#idleFrames++;
    if (this.#idleFrames <= MAX_IDLE_FRAMES) return false;
    const now = performance.now();
    const isFlood = now - this.#idleSince < SECOND_MS;
    this.#idleFrames = 0;
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
  if (opcode === TEXT) return length <= MAX_TEXT;
  return (opcode === PING || opcode === CLOSE) && length <= MAX_CONTROL;
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

const key = new Uint8Array(4);
const keyWord = new Uint32Array(key.buffer);
/** Shorter pieces are unmasked byte by byte, because a view of the words costs more. */
const LEAST_BY_WORDS = 32;

/**
 * Unmasks in place (RFC 6455 §5.3), by words: byte by byte it costs ten times as much, more than the rest of receiving.
 * `at`: where in the key the piece begins.
 */
function unmask(piece: Buffer, mask: Uint8Array, at: number): void {
  const { length, byteOffset } = piece;
  if (length < LEAST_BY_WORDS) {
    unmaskBytes(piece, mask, at, 0, length);
    return;
  }
  const head = -byteOffset & 3;
  const words = new Uint32Array(piece.buffer, byteOffset + head, (length - head) >>> 2);
  for (let index = 0; index < key.length; index++) key[index] = mask[(at + head + index) & 3] as number;
  const word = keyWord[0] as number;
  unmaskBytes(piece, mask, at, 0, head);
  for (let index = 0; index < words.length; index++) words[index] = (words[index] as number) ^ word;
  unmaskBytes(piece, mask, at, head + words.byteLength, length);
}

function unmaskBytes(piece: Buffer, mask: Uint8Array, at: number, from: number, to: number): void {
  for (let index = from; index < to; index++) {
    piece[index] = (piece[index] as number) ^ (mask[(at + index) & 3] as number);
  }
}
