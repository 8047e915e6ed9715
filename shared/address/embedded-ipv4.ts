import { isIPv4, type SocketAddress } from "node:net";
import { dialledAddress } from "./network.ts";

/** A form of IPv6 address that a gateway on the way turns into an IPv4 one. */
interface Embedding {
  /** What its bytes from `from` on are. */
  readonly from: number;
  readonly bytes: readonly number[];
  /** Where the four bytes of the IPv4 address may be. */
  readonly at: readonly (readonly [number, number, number, number])[];
  /** They are written with each bit turned round. */
  readonly inverted?: boolean;
}

const LAST_FOUR = [12, 13, 14, 15] as const;

const EMBEDDINGS: readonly Embedding[] = [
  // NAT64, the well-known prefix 64:ff9b::/96 (RFC 6052 §2.1).
  { from: 0, bytes: [0x00, 0x64, 0xff, 0x9b, 0, 0, 0, 0, 0, 0, 0, 0], at: [LAST_FOUR] },
  // NAT64 for local use, 64:ff9b:1::/48 (RFC 8215): networks take a /48, /56, /64 or /96 of it, and byte 8 is not used
  // for the address (RFC 6052 §2.2).
  {
    from: 0,
    bytes: [0x00, 0x64, 0xff, 0x9b, 0, 1],
    at: [[6, 7, 9, 10], [7, 9, 10, 11], [9, 10, 11, 12], LAST_FOUR],
  },
  // 6to4, 2002::/16 (RFC 3056 §2).
  { from: 0, bytes: [0x20, 0x02], at: [[2, 3, 4, 5]] },
  // Teredo, 2001::/32 (RFC 4380 §4): the server, and the client in inverted bits.
  { from: 0, bytes: [0x20, 0x01, 0, 0], at: [[4, 5, 6, 7]] },
  { from: 0, bytes: [0x20, 0x01, 0, 0], at: [LAST_FOUR], inverted: true },
  // ISATAP, an interface identifier 0:5efe or 200:5efe of any prefix (RFC 5214 §6.1).
  { from: 8, bytes: [0x00, 0x00, 0x5e, 0xfe], at: [LAST_FOUR] },
  { from: 8, bytes: [0x02, 0x00, 0x5e, 0xfe], at: [LAST_FOUR] },
  // IPv4-compatible, ::/96 (RFC 4291 §2.5.5.1).
  { from: 0, bytes: new Array<number>(12).fill(0), at: [LAST_FOUR] },
  // IPv4-translated, ::ffff:0:0:0/96 (RFC 2765 §2.1).
  { from: 0, bytes: [0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0, 0], at: [LAST_FOUR] },
];

/**
 * The IPv4 addresses to which an IPv6 address may lead, as the kernel or a gateway dials them. Where a form has several
 * readings, all of them: who denies an address means each way to it.
 */
export function embeddedIPv4(address: SocketAddress): SocketAddress[] {
  if (address.family !== "ipv6") return [];
  const bytes = bytesOf(address.address);
  return EMBEDDINGS.filter((embedding) => embedding.bytes.every((byte, i) => byte === bytes[embedding.from + i]))
    .flatMap(({ at, inverted }) => at.map((places) => ipv4At(bytes, places, inverted)))
    .filter((found) => found !== undefined);
}

function ipv4At(bytes: Uint8Array, places: readonly number[], inverted = false): SocketAddress | undefined {
  const text = places.map((place) => (bytes[place] ?? 0) ^ (inverted ? 0xff : 0)).join(".");
  // The unspecified address is what another reading leaves, or `::1` and its like.
  return text.startsWith("0.") ? undefined : dialledAddress(text);
}

/** The 16 bytes of an address as `SocketAddress` writes it. */
function bytesOf(ipv6: string): Uint8Array {
  const [before = "", after] = ipv6.split("::");
  const [head, tail] = [groupsOf(before), groupsOf(after ?? "")];
  const groups =
    after === undefined ? head : [...head, ...new Array<number>(8 - head.length - tail.length).fill(0), ...tail];
  return Uint8Array.from(groups.flatMap((group) => [group >>> 8, group & 0xff]));
}

function groupsOf(part: string): number[] {
  return part === ""
    ? []
    : part.split(":").flatMap((group) => (isIPv4(group) ? pairsOf(group) : [Number.parseInt(group, 16)]));
}

/** The last four bytes may be written as an IPv4 address (RFC 4291 §2.2). */
function pairsOf(dotted: string): [number, number] {
  const [a = 0, b = 0, c = 0, d = 0] = dotted.split(".").map(Number);
  return [a * 256 + b, c * 256 + d];
}
