import { YamuxError } from "./errors.ts";

/**
 * The 12-byte header of yamux version 0 (hashicorp/yamux `spec.md`, "Framing").
 *
 * ```
 *  0        1        2        4                8               12
 *  version  type     flags    stream id        length
 *  uint8    uint8    uint16   uint32           uint32           big endian
 * ```
 */

export const HEADER_LENGTH = 12;
export const VERSION = 0;

export const FrameType = { data: 0, windowUpdate: 1, ping: 2, goAway: 3 } as const;
export type FrameType = (typeof FrameType)[keyof typeof FrameType];

export const Flag = { none: 0, syn: 1, ack: 2, fin: 4, rst: 8 } as const;

/** The code in the length field of a go-away (spec, "Go Away"). */
export const GoAwayCode = { normal: 0, protocolError: 1, internalError: 2 } as const;

/** The window every stream starts with unless both ends agreed on another (spec, "Flow Control"). */
export const SPEC_INITIAL_WINDOW = 256 * 1024;

/** Windows and credit are uint32. */
export const MAX_UINT32 = 0xffff_ffff;

/** A header as a buffer of its own; plain byte stores, because this runs once for each frame. */
export function header(type: FrameType, flags: number, streamId: number, length: number): Buffer {
  const bytes = Buffer.allocUnsafe(HEADER_LENGTH);
  bytes[0] = VERSION;
  bytes[1] = type;
  bytes[2] = flags >>> 8;
  bytes[3] = flags;
  bytes[4] = streamId >>> 24;
  bytes[5] = streamId >>> 16;
  bytes[6] = streamId >>> 8;
  bytes[7] = streamId;
  bytes[8] = length >>> 24;
  bytes[9] = length >>> 16;
  bytes[10] = length >>> 8;
  bytes[11] = length;
  return bytes;
}

/** Receives what is decoded, in wire order. Each method may throw a `YamuxError`, which ends the session. */
export interface FrameConsumer {
  /** A data frame begins; its payload follows in pieces. A length is refused here, before a byte of it is kept. */
  onDataHeader(flags: number, streamId: number, length: number): void;
  /** A piece of the payload of the frame begun last. */
  onDataPiece(piece: Buffer): void;
  /** The payload is complete, so FIN and RST take effect now. */
  onDataEnd(flags: number): void;
  onWindowUpdate(flags: number, streamId: number, delta: number): void;
  onPing(flags: number, value: number): void;
  onGoAway(code: number): void;
}

/**
 * Decodes frames from bytes in any split. It keeps at most one partial header; payload passes through as slices of what
 * arrived, so that neither a claimed length nor a slow peer makes it keep anything.
 */
export class Decoder {
  readonly #consumer: FrameConsumer;
  readonly #partial = Buffer.allocUnsafeSlow(HEADER_LENGTH);
  #partialLength = 0;
  /** Payload bytes still to come; -1 between frames. */
  #payloadLeft = -1;
  #flags = 0;
  #stopped = false;

  constructor(consumer: FrameConsumer) {
    this.#consumer = consumer;
  }

  /** True between frames, the only place for a clean end. */
  get atBoundary(): boolean {
    return this.#partialLength === 0 && this.#payloadLeft < 0;
  }

  /** Decodes nothing more, not even the rest of a chunk: the session may end inside a call to its consumer. */
  stop(): void {
    this.#stopped = true;
  }

  push(chunk: Buffer): void {
    let offset = 0;
    while (offset < chunk.length && !this.#stopped) {
      if (this.#payloadLeft > 0) offset = this.#takePayload(chunk, offset);
      else offset = this.#takeHeader(chunk, offset);
    }
  }

  #takePayload(chunk: Buffer, offset: number): number {
    const end = Math.min(chunk.length, offset + this.#payloadLeft);
    this.#payloadLeft -= end - offset;
    this.#consumer.onDataPiece(offset === 0 && end === chunk.length ? chunk : chunk.subarray(offset, end));
    if (this.#payloadLeft === 0) this.#endPayload();
    return end;
  }

  #endPayload(): void {
    this.#payloadLeft = -1;
    this.#consumer.onDataEnd(this.#flags);
  }

  #takeHeader(chunk: Buffer, offset: number): number {
    if (this.#partialLength === 0 && chunk.length - offset >= HEADER_LENGTH) {
      this.#onHeader(chunk, offset);
      return offset + HEADER_LENGTH;
    }
    const end = Math.min(chunk.length, offset + HEADER_LENGTH - this.#partialLength);
    chunk.copy(this.#partial, this.#partialLength, offset, end);
    this.#partialLength += end - offset;
    if (this.#partialLength === HEADER_LENGTH) {
      this.#partialLength = 0;
      this.#onHeader(this.#partial, 0);
    }
    return end;
  }

  #onHeader(bytes: Buffer, at: number): void {
    const version = bytes[at];
    if (version !== VERSION) throw new YamuxError("protocol", `unknown yamux version ${version}`);
    const type = bytes[at + 1];
    const flags = bytes.readUInt16BE(at + 2);
    const streamId = bytes.readUInt32BE(at + 4);
    const length = bytes.readUInt32BE(at + 8);
    if (type === FrameType.data) {
      this.#consumer.onDataHeader(flags, streamId, length);
      this.#flags = flags;
      this.#payloadLeft = length;
      if (length === 0) this.#endPayload();
    } else if (type === FrameType.windowUpdate) this.#consumer.onWindowUpdate(flags, streamId, length);
    else if (type === FrameType.ping) this.#consumer.onPing(flags, length);
    else if (type === FrameType.goAway) this.#consumer.onGoAway(length);
    else throw new YamuxError("protocol", `unknown frame type ${type}`);
  }
}
