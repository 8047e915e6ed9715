export interface FrameShape {
  readonly opcode: number;
  readonly payload?: Buffer;
  readonly final?: boolean;
  readonly mask?: Buffer;
  readonly reserved?: number;
  /** Number of bytes of the extended length, needed or not. */
  readonly lengthBytes?: 0 | 2 | 8;
  /** Says this length, whatever the payload's is. */
  readonly claims?: bigint;
}

/** One WebSocket frame, well formed or not (RFC 6455 §5.2). */
export function frame(shape: FrameShape): Buffer {
  const { opcode, payload = Buffer.alloc(0), final = true, mask, reserved = 0 } = shape;
  const length = shape.claims ?? BigInt(payload.length);
  const lengthBytes = shape.lengthBytes ?? (length < 126n ? 0 : length < 65_536n ? 2 : 8);
  const header = Buffer.alloc(2 + lengthBytes);
  header[0] = (final ? 0x80 : 0) | reserved | opcode;
  header[1] = (mask ? 0x80 : 0) | (lengthBytes === 0 ? Number(length) : lengthBytes === 2 ? 126 : 127);
  if (lengthBytes === 2) header.writeUInt16BE(Number(length), 2);
  if (lengthBytes === 8) header.writeBigUInt64BE(length, 2);
  if (mask === undefined) return Buffer.concat([header, payload]);
  return Buffer.concat([header, mask, payload.map((byte, index) => byte ^ (mask[index % 4] as number))]);
}

/** A control message as a text frame. */
export function textFrame(message: unknown, mask?: Buffer): Buffer {
  return frame({ opcode: 1, payload: Buffer.from(JSON.stringify(message)), ...(mask ? { mask } : {}) });
}
