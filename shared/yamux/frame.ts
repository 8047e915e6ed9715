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

/** What a go-away carries in its length field (spec, "Go Away"). */
export const GoAwayCode = { normal: 0, protocolError: 1, internalError: 2 } as const;

/** The window every stream starts with unless both ends agreed on another (spec, "Flow Control"). */
export const SPEC_INITIAL_WINDOW = 256 * 1024;

/** Windows and credit are uint32. */
export const MAX_UINT32 = 0xffff_ffff;

/** Writes one header into `into` at `offset`; plain byte stores, because this runs once for each frame. */
export function writeHeader(
  into: Uint8Array,
  offset: number,
  type: FrameType,
  flags: number,
  streamId: number,
  length: number,
): void {
  into[offset] = VERSION;
  into[offset + 1] = type;
  into[offset + 2] = flags >>> 8;
  into[offset + 3] = flags;
  into[offset + 4] = streamId >>> 24;
  into[offset + 5] = streamId >>> 16;
  into[offset + 6] = streamId >>> 8;
  into[offset + 7] = streamId;
  into[offset + 8] = length >>> 24;
  into[offset + 9] = length >>> 16;
  into[offset + 10] = length >>> 8;
  into[offset + 11] = length;
}

/** A header as a buffer of its own. */
export function header(type: FrameType, flags: number, streamId: number, length: number): Buffer {
  const buffer = Buffer.allocUnsafe(HEADER_LENGTH);
  writeHeader(buffer, 0, type, flags, streamId, length);
  return buffer;
}
