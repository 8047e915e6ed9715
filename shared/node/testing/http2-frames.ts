// Frames of HTTP/2 written by hand (RFC 9113 §4.1, §6): no client library sends what a hostile peer sends.

export const PREFACE = Buffer.from("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "latin1");

export const FRAME = {
  data: 0,
  headers: 1,
  priority: 2,
  rstStream: 3,
  settings: 4,
  ping: 6,
  goaway: 7,
  windowUpdate: 8,
  continuation: 9,
} as const;
/** END_STREAM and ACK are the same bit of different frames. */
export const FLAG = { ack: 1, endStream: 1, endHeaders: 4 } as const;
const SETTING = { headerTableSize: 1, initialWindowSize: 4 } as const;

const NOTHING = Buffer.alloc(0);
const CANCEL = 8;
const HEADER_BYTES = 9;

interface Frame {
  readonly type: number;
  readonly flags?: number;
  readonly stream?: number;
  readonly payload?: Buffer;
}

export function frame({ type, flags = 0, stream = 0, payload = NOTHING }: Frame): Buffer {
  const header = Buffer.alloc(HEADER_BYTES);
  header.writeUIntBE(payload.length, 0, 3);
  header.writeUInt8(type, 3);
  header.writeUInt8(flags, 4);
  header.writeUInt32BE(stream, 5);
  return Buffer.concat([header, payload]);
}

export function settings(values: Partial<Record<keyof typeof SETTING, number>> = {}): Buffer {
  const payload = Object.entries(values).map(([name, value]) => {
    const setting = Buffer.alloc(6);
    setting.writeUInt16BE(SETTING[name as keyof typeof SETTING], 0);
    setting.writeUInt32BE(value, 2);
    return setting;
  });
  return frame({ type: FRAME.settings, payload: Buffer.concat(payload) });
}

export function reset(stream: number): Buffer {
  return frame({ type: FRAME.rstStream, stream, payload: uint32(CANCEL) });
}

/** Stream 0: the window of the whole connection. */
export function windowUpdate(stream: number, bytes: number): Buffer {
  return frame({ type: FRAME.windowUpdate, stream, payload: uint32(bytes) });
}

export function data(stream: number, payload: Buffer): Buffer {
  return frame({ type: FRAME.data, stream, payload });
}

/** A CONNECT; `more`: fields in HPACK after `:method` and `:authority`. */
export function connectRequest(stream: number, authority: string, more: Buffer = NOTHING): Buffer {
  const payload = Buffer.concat([literal(2, "CONNECT"), literal(1, authority), more]);
  return frame({ type: FRAME.headers, flags: FLAG.endHeaders, stream, payload });
}

/** A field whose name is in HPACK's static table, not added to the dynamic one (RFC 7541 §6.2.2). */
function literal(index: number, value: string): Buffer {
  return Buffer.concat([Buffer.of(index, value.length), Buffer.from(value, "latin1")]);
}

/** A field that goes to the first place of the dynamic table (RFC 7541 §6.2.1); `INDEXED` refers to it. */
export function indexedField(name: string, valueBytes: number): Buffer {
  const length = hpackInteger(valueBytes);
  return Buffer.concat([Buffer.of(0x40, name.length), Buffer.from(name), length, Buffer.alloc(valueBytes, "x")]);
}

/** The first place of the dynamic table (RFC 7541 §2.3.3, §6.1). */
export const INDEXED = Buffer.of(0x80 | 62);

/** An integer of more than seven bits (RFC 7541 §5.1). */
function hpackInteger(value: number): Buffer {
  if (value < 127) return Buffer.of(value);
  const bytes = [127];
  let rest = value - 127;
  for (; rest >= 128; rest >>= 7) bytes.push((rest & 127) | 128);
  return Buffer.of(...bytes, rest);
}

function uint32(value: number): Buffer {
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32BE(value);
  return bytes;
}

/** The frames that a peer sends. */
export class FrameReader {
  #rest = NOTHING;

  push(chunk: Buffer): Required<Frame>[] {
    const bytes = Buffer.concat([this.#rest, chunk]);
    const frames: Required<Frame>[] = [];
    let at = 0;
    for (;;) {
      const end = at + HEADER_BYTES + (at + HEADER_BYTES <= bytes.length ? bytes.readUIntBE(at, 3) : 0);
      if (at + HEADER_BYTES > bytes.length || end > bytes.length) break;
      const [type, flags] = [bytes.readUInt8(at + 3), bytes.readUInt8(at + 4)];
      frames.push({ type, flags, stream: bytes.readUInt32BE(at + 5), payload: bytes.subarray(at + HEADER_BYTES, end) });
      at = end;
    }
    this.#rest = bytes.subarray(at);
    return frames;
  }
}
