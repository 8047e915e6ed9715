import { encodePacket, FRAME_HEAD } from "./packet.ts";

/**
 * DATA, which is nearly all that passes, is written and read by hand, because the library would copy its payload
 * (docs/decisions/0052-konnectivity-packets.md):
 *
 * ```
 *  00 | length of all below | 08 04      | 22 length of all below | 08 connectID | 1a length of the payload | payload
 *  gRPC, 5 bytes            | type: DATA | field 4: Data          | field 1      | field 3                  |
 * ```
 */
const TYPE = 0x08;
const TYPE_IS_DATA = 0x04;
const DATA = 0x22;
const CONNECT_ID = 0x08;
const PAYLOAD = 0x1a;

/** Bytes from the type of a message to its payload, at most, if it is DATA as protobuf libraries write it. */
export const MAX_DATA_HEAD = 32;
/** Bytes of a varint whose value a number holds exactly, 49 bits of it. Agents count their connectIDs from 1. */
const MAX_VARINT = 7;
/** A byte of a varint carries 7 bits, the lowest first; the bit above them says that another byte follows. */
const FOLLOWED = 128;

/** Above it are connectIDs that only the library reads and writes. */
const MAX_CONNECT_ID = FOLLOWED ** MAX_VARINT - 1;

/** One DATA packet in one gRPC message, in pieces to write one after the other. The last is the payload itself. */
export function encodeData(connectID: bigint, payload: Buffer): readonly Buffer[] {
  if (connectID >= 0n && connectID <= MAX_CONNECT_ID) return [dataHead(Number(connectID), payload.length), payload];
  return [encodePacket({ case: "data", value: { connectID, error: "", data: payload } })];
}

/**
 * The bytes before a payload of `length` bytes, gRPC's own included: their writer writes the payload next. `id`: from 0
 * to `MAX_CONNECT_ID`.
 */
export function dataHead(id: number, length: number): Buffer {
  const body = 1 + varintLength(id) + 1 + varintLength(length) + length;
  const message = 3 + varintLength(body) + body;
  const head = Buffer.allocUnsafe(FRAME_HEAD + message - length);
  head[0] = 0;
  head.writeUInt32BE(message, 1);
  head[FRAME_HEAD] = TYPE;
  head[FRAME_HEAD + 1] = TYPE_IS_DATA;
  head[FRAME_HEAD + 2] = DATA;
  let at = writeVarint(head, FRAME_HEAD + 3, body);
  head[at] = CONNECT_ID;
  at = writeVarint(head, at + 1, id);
  head[at] = PAYLOAD;
  writeVarint(head, at + 1, length);
  return head;
}

function varintLength(value: number): number {
  let length = 1;
  for (let rest = value; rest >= FOLLOWED; rest = Math.floor(rest / FOLLOWED)) length++;
  return length;
}

/** Returns where the next byte belongs. */
function writeVarint(into: Buffer, from: number, value: number): number {
  let at = from;
  let rest = value;
  for (; rest >= FOLLOWED; rest = Math.floor(rest / FOLLOWED)) into[at++] = (rest % FOLLOWED) + FOLLOWED;
  into[at++] = rest;
  return at;
}

/**
 * Reads the beginning of a DATA message. It owns no bytes, and holds what it has read last.
 */
export class DataHead {
  connectID = 0n;
  /** Index of the first byte of the payload, which is the rest of the message. */
  payloadAt = 0;
  #at = 0;

  /**
   * Reads the message in `bytes` from index `start` to `end`, of which `MAX_DATA_HEAD` bytes must be there. False: it
   * is another packet, or one that is written in an unusual way.
   */
  read(bytes: Buffer, start: number, end: number): boolean {
    if (bytes[start] !== TYPE || bytes[start + 1] !== TYPE_IS_DATA || bytes[start + 2] !== DATA) return false;
    this.#at = start + 3;
    if (this.#varint(bytes) !== end - this.#at || bytes[this.#at++] !== CONNECT_ID) return false;
    const connectID = this.#varint(bytes);
    if (bytes[this.#at++] !== PAYLOAD || Number.isNaN(connectID)) return false;
    if (this.#varint(bytes) !== end - this.#at) return false;
    this.connectID = BigInt(connectID);
    this.payloadAt = this.#at;
    return true;
  }

  /** NaN, which equals nothing: too long. */
  #varint(bytes: Buffer): number {
    let value = 0;
    let unit = 1;
    for (let length = 0; length < MAX_VARINT; length++) {
      const byte = bytes[this.#at++] ?? 0;
      value += (byte % FOLLOWED) * unit;
      if (byte < FOLLOWED) return value;
      unit *= FOLLOWED;
    }
    return Number.NaN;
  }
}
