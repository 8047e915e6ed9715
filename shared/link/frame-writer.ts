import type { Duplex } from "node:stream";
import { wholeRecords } from "../basics/bytes.ts";
import type { ControlMessage } from "./control.ts";

/** RFC 6455 §5.2: opcodes of the frames that are written here. */
export const TEXT = 0x1;
export const BINARY = 0x2;
export const CLOSE = 0x8;
const FIN = 0x80;
const MASKED = 0x80;

/** Maximum length of a binary message with its header, unless one buffer is longer: four TLS records. */
const MESSAGE_BYTES = 64 * 1024;
/** Many frames of a few bytes: one copy costs less than handing each buffer to the kernel. */
const SMALL_BATCH_BYTES = 8 * 1024;

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
  #pendingBytes = 0;
  #writesTaken = 0;

  constructor(socket: Duplex, masked: boolean) {
    this.#socket = socket;
    this.#masked = masked;
    this.#headerBytes = frameHeader(BINARY, MESSAGE_BYTES - 1, masked).length;
  }

  /** Payload bytes that the socket has not taken yet. */
  get pendingBytes(): number {
    return this.#pendingBytes;
  }

  /** How many writes the socket has taken. */
  get writesTaken(): number {
    return this.#writesTaken;
  }

  /** Bytes of control messages that the peer leaves unread. */
  get unreadControlBytes(): number {
    return this.#socket.writableLength - this.#pendingBytes + this.#controlBytes;
  }

  /** See `Transport.wholeRecords`. */
  wholeRecords(at: number, most: number): number {
    const inMessage = MESSAGE_BYTES - this.#headerBytes;
    const from = at % inMessage;
    return wholeRecords(this.#headerBytes + from, Math.min(most, inMessage - from));
  }

  /** `onTaken` is called when the socket has taken the batch. */
  write(batch: readonly Buffer[], byteLength: number, onTaken: () => void): void {
    this.#pendingBytes += byteLength;
    const taken = (): void => {
      this.#pendingBytes -= byteLength;
      this.#writesTaken++;
      onTaken();
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
    if (this.#controlBytes === 0) return NOTHING;
    const frames = this.#control;
    this.#control = [];
    this.#controlBytes = 0;
    return frames;
  }
}

const NOTHING: readonly Buffer[] = [];

/** The header of a message in one frame; with a mask key of zero for a client (RFC 6455 §5.3). */
export function frameHeader(
  opcode: typeof BINARY | typeof TEXT | typeof CLOSE,
  length: number,
  masked: boolean,
): Buffer {
  const maskBit = masked ? MASKED : 0;
  const maskBytes = masked ? 4 : 0;
  let header: Buffer;
  if (length < 126) {
    header = Buffer.allocUnsafe(2 + maskBytes);
    header[1] = maskBit | length;
  } else if (length < 0x1_0000) {
    header = Buffer.allocUnsafe(4 + maskBytes);
    header[1] = maskBit | 126;
    header.writeUInt16BE(length, 2);
  } else {
    header = Buffer.allocUnsafe(10 + maskBytes);
    header[1] = maskBit | 127;
    header.writeUInt32BE(0, 2);
    header.writeUInt32BE(length, 6);
  }
  header[0] = FIN | opcode;
  if (masked) header.writeUInt32BE(0, header.length - 4);
  return header;
}
