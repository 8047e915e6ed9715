import { create, fromBinary, type Message, toBinary } from "@bufbuild/protobuf";
import { type Packet, PacketSchema, PacketType } from "./client_pb.ts";

/** A packet of Konnectivity's protocol, whose `case` says what it is: `dialRequest`, `closeResponse` and so on. */
export type KonnectivityPacket = PacketOf<Exclude<Packet["payload"], { case: undefined }>>;
/** Without what only the library's own objects have. */
type PacketOf<P> = P extends { case: infer C; value: infer V }
  ? { readonly case: C; readonly value: Omit<V, keyof Message> }
  : never;

/** Any but DATA, whose bytes are passed on apart. */
export type ControlPacket = Exclude<KonnectivityPacket, { case: "data" }>;

/** A gRPC message begins with a byte that says whether it is compressed, and four of its length. */
export const FRAME_HEAD = 5;

const TYPES = {
  dialRequest: PacketType.DIAL_REQ,
  dialResponse: PacketType.DIAL_RSP,
  closeRequest: PacketType.CLOSE_REQ,
  closeResponse: PacketType.CLOSE_RSP,
  data: PacketType.DATA,
  closeDial: PacketType.DIAL_CLS,
  drain: PacketType.DRAIN,
} as const satisfies Record<KonnectivityPacket["case"], PacketType>;

/** The packet as one gRPC message. `encodeData` does the same for DATA, and copies no payload. */
export function encodePacket({ case: name, value }: KonnectivityPacket): Buffer {
  const packet = create(PacketSchema, { type: TYPES[name], payload: { case: name, value } as Packet["payload"] });
  const message = toBinary(PacketSchema, packet);
  const framed = Buffer.alloc(FRAME_HEAD + message.length);
  framed.writeUInt32BE(message.length, 1);
  framed.set(message, FRAME_HEAD);
  return framed;
}

/**
 * Reads one message. `undefined`: a type that only a newer Konnectivity knows. The type counts, as in Konnectivity: a
 * payload of another type, or none, is one whose fields are all empty. Throws on bytes that are no packet.
 */
export function decodePacket(message: Uint8Array): KonnectivityPacket | undefined {
  const { type, payload } = fromBinary(PacketSchema, message);
  const name = CASES.get(type);
  if (name === undefined) return undefined;
  return { case: name, value: payload.case === name ? payload.value : EMPTY[name] } as KonnectivityPacket;
}

const CASES = new Map<number, KonnectivityPacket["case"]>(
  Object.entries(TYPES).map(([name, type]) => [type, name as KonnectivityPacket["case"]]),
);

const NOTHING = new Uint8Array();
const EMPTY = {
  dialRequest: { protocol: "", address: "", random: 0n },
  dialResponse: { error: "", connectID: 0n, random: 0n },
  closeRequest: { connectID: 0n },
  closeResponse: { error: "", connectID: 0n },
  data: { connectID: 0n, error: "", data: NOTHING },
  closeDial: { random: 0n },
  drain: {},
} as const satisfies { [P in KonnectivityPacket as P["case"]]: P["value"] };
