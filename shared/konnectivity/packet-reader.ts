import { GrowingBytes } from "../basics/bytes.ts";
import { DataHead, MAX_DATA_HEAD } from "./data.ts";
import { type ControlPacket, decodePacket, FRAME_HEAD } from "./packet.ts";

/** The limit of grpc-go. No bytes are held for it: DATA is passed on as it arrives. */
const MAX_MESSAGE = 4 * 1024 * 1024;
/** Longer packets than this are DATA. The text of an error is what is longest among the others. */
const MAX_CONTROL_MESSAGE = 64 * 1024;

/** Bytes that are no packet of Konnectivity: their sender gets this sentence, and its stream ends. */
export class MalformedPackets extends Error {}

export interface PacketHandler {
  /**
   * The next bytes of a connection: a part of a DATA packet, and a view of the chunk that it came in. May be called
   * several times for one packet, and with no bytes for an empty one.
   */
  onData(connectID: bigint, part: Buffer): void;
  onPacket(packet: ControlPacket): void;
}

/**
 * The packets of one direction of a gRPC stream: messages with a head of five bytes (gRPC over HTTP/2,
 * "Length-Prefixed-Message"), in chunks of any size. Holds at most one message of `MAX_CONTROL_MESSAGE`, and of that
 * only bytes that have come.
 */
export class PacketReader {
  readonly #handler: PacketHandler;
  readonly #head = new DataHead();
  /** The beginning of a message whose rest has not come. */
  #held: GrowingBytes | undefined;
  /** How much of the message must be there, with its head, before it is looked at again. */
  #wanted = FRAME_HEAD;
  /** How many bytes of the payload of a DATA packet are still to come. */
  #payloadLeft = 0;

  constructor(handler: PacketHandler) {
    this.#handler = handler;
  }

  /** False between two messages: there a stream may end. */
  get isInMessage(): boolean {
    return this.#payloadLeft > 0 || this.#held !== undefined;
  }

  /** Throws `MalformedPackets`; nothing that comes after it means anything. */
  push(chunk: Buffer): void {
    for (let at = 0; at < chunk.length; ) {
      if (this.#payloadLeft > 0) at += this.#passOn(chunk, at);
      else if (this.#held === undefined) at += this.#readMessage(chunk, at) || this.#hold(chunk, at);
      else at += this.#hold(chunk, at);
    }
  }

  #passOn(bytes: Buffer, at: number): number {
    const part = bytes.subarray(at, at + this.#payloadLeft);
    this.#payloadLeft -= part.length;
    this.#handler.onData(this.#head.connectID, part);
    return part.length;
  }

  /** Keeps as many bytes as are wanted, and reads what is held if that suffices. Returns how many it has kept. */
  #hold(chunk: Buffer, at: number): number {
    this.#held ??= new GrowingBytes();
    const piece = chunk.subarray(at, at + this.#wanted - this.#held.length);
    this.#held.append(piece);
    if (this.#held.length < this.#wanted) return piece.length;
    const held = this.#held;
    this.#held = undefined;
    if (this.#readMessage(held.bytes, 0) === 0) this.#held = held;
    return piece.length;
  }

  /**
   * Reads a message, or the beginning of DATA with what has come of its payload. Returns how many bytes that was; 0: it
   * needs `#wanted` of them.
   */
  #readMessage(bytes: Buffer, at: number): number {
    const start = at + FRAME_HEAD;
    this.#wanted = FRAME_HEAD;
    if (bytes.length < start) return 0;
    if (bytes[at] !== 0) throw new MalformedPackets("a compressed gRPC message came, and no compression was agreed on");
    const length = bytes.readUInt32BE(at + 1);
    if (length > MAX_MESSAGE) throw new MalformedPackets(`a gRPC message of ${length} bytes is too long`);
    this.#wanted = FRAME_HEAD + Math.min(length, MAX_DATA_HEAD);
    if (bytes.length < at + this.#wanted) return 0;
    if (this.#head.read(bytes, start, start + length)) {
      const { payloadAt } = this.#head;
      this.#payloadLeft = start + length - payloadAt;
      return payloadAt - at + this.#passOn(bytes, payloadAt);
    }
    if (length > MAX_CONTROL_MESSAGE) throw new MalformedPackets(`a packet of ${length} bytes came that is no DATA`);
    this.#wanted = FRAME_HEAD + length;
    if (bytes.length < at + this.#wanted) return 0;
    this.#deliver(bytes.subarray(start, start + length));
    return this.#wanted;
  }

  #deliver(message: Buffer): void {
    const packet = decoded(message);
    if (packet?.case === "data") this.#handler.onData(packet.value.connectID, bufferOf(packet.value.data));
    else if (packet !== undefined) this.#handler.onPacket(packet);
  }
}

function decoded(message: Buffer) {
  try {
    return decodePacket(message);
  } catch (error) {
    throw new MalformedPackets("a gRPC message came that is no packet of Konnectivity", { cause: error });
  }
}

function bufferOf({ buffer, byteOffset, length }: Uint8Array): Buffer {
  return Buffer.from(buffer, byteOffset, length);
}
