import { isIP, isIPv4, isIPv6, SocketAddress } from "node:net";
import { RecentMap } from "../basics/collections.ts";

/** The loopback networks (RFC 1122 §3.2.1.3, RFC 4291 §2.5.3). */
export const LOOPBACK = ["127.0.0.0/8", "::1/128"] as const;

/** A range of addresses. An IPv4-mapped range is held as the IPv4 one. */
export interface Network {
  readonly network: SocketAddress;
  readonly prefix: number;
}

/** Parses an address and its prefix length. Throws what `refuse` makes of a sentence about the error. */
export function parseNetwork(address: string, bits: string | undefined, refuse: (why: string) => Error): Network {
  if (address.includes("%")) throw refuse("an address with a zone cannot be dialled");
  const literal = isIPv4(address) ? 32 : 128;
  if (bits !== undefined && !/^[0-9]{1,3}$/.test(bits)) throw refuse(`"/${bits}" is not a prefix length`);
  const prefix = bits === undefined ? literal : Number(bits);
  if (prefix > literal) throw refuse(`a prefix length here is at most ${literal}`);
  const network = new SocketAddress({ address, family: literal === 32 ? "ipv4" : "ipv6" });
  const mapped = mappedIPv4(network);
  return mapped !== undefined && prefix >= 96 ? { network: mapped, prefix: prefix - 96 } : { network, prefix };
}

/** Parses a network or an address. Throws an `Error` whose sentence begins with `name`. */
export function parseCidr(text: string, name = "the network"): Network {
  const refuse = (why: string) => new Error(`${name} "${text}": ${why} (write for example 10.0.0.0/8 or fd00::/8)`);
  const slash = text.indexOf("/");
  const address = slash < 0 ? text : text.slice(0, slash);
  if (isIP(address) === 0) throw refuse(`"${address}" is not an IP address`);
  return parseNetwork(address, slash < 0 ? undefined : text.slice(slash + 1), refuse);
}

/** Whether every address of `inner` is in `outer`. */
export function contains(outer: Network, inner: Network): boolean {
  const { prefix } = outer;
  if (outer.network.family !== inner.network.family || prefix > inner.prefix) return false;
  return formatNetwork(outer) === formatNetwork({ network: inner.network, prefix });
}

/** Whether this is a loopback address, or `localhost`. */
export function isLoopback(host: string): boolean {
  if (host === "localhost") return true;
  return isIP(host) !== 0 && LOOPBACK.some((text) => contains(parseCidr(text), parseCidr(host)));
}

/** The bytes of a network's first address, with zeros after its prefix. */
function maskedBytes(address: string, prefix: number): Uint8Array {
  return addressBytes(address).map((byte, index) => {
    const bits = Math.min(8, Math.max(0, prefix - 8 * index));
    return byte & (0xff00 >> bits);
  });
}

/** A network in the form by which it is compared: `10.0.0.0/8`, without bits after its prefix. */
export function formatNetwork({ network: { address, family }, prefix }: Network): string {
  const bytes = maskedBytes(address, prefix);
  if (family === "ipv4") return `${bytes.join(".")}/${prefix}`;
  const groups = Array.from({ length: 8 }, (_, i) =>
    (((bytes[2 * i] ?? 0) << 8) | (bytes[2 * i + 1] ?? 0)).toString(16),
  );
  return `${new SocketAddress({ address: groups.join(":"), family: "ipv6" }).address}/${prefix}`;
}

/** Number of parsed addresses that are kept: most connections go to a few kubelets and services. */
const MAX_PARSED = 1_024;
const recent = new RecentMap<string, SocketAddress>(MAX_PARSED);

/**
 * The address that the kernel dials for this text: an IPv4-mapped address is IPv4, the unspecified address is loopback.
 * A name gives `undefined`.
 */
export function dialledAddress(text: string): SocketAddress | undefined {
  const known = recent.get(text);
  if (known !== undefined) return known;
  const address = parseAddress(text);
  if (address !== undefined) recent.set(text, address);
  return address;
}

function parseAddress(text: string): SocketAddress | undefined {
  if (isIPv4(text)) return new SocketAddress({ address: text === "0.0.0.0" ? "127.0.0.1" : text, family: "ipv4" });
  if (!isIPv6(text)) return undefined;
  const address = new SocketAddress({ address: text.replace(/%.*$/, ""), family: "ipv6" });
  if (address.address === "::") return new SocketAddress({ address: "::1", family: "ipv6" });
  const mapped = mappedIPv4(address);
  return mapped?.address === "0.0.0.0" ? dialledAddress(mapped.address) : (mapped ?? address);
}

/** The IPv4 address in `::ffff:0:0/96` (RFC 4291 §2.5.5.2), which is what the kernel dials. */
function mappedIPv4(address: SocketAddress): SocketAddress | undefined {
  if (address.family !== "ipv6" || !address.address.startsWith("::ffff:")) return undefined;
  const dotted = address.address.slice(7);
  return isIPv4(dotted) ? new SocketAddress({ address: dotted, family: "ipv4" }) : undefined;
}

/** The canonical spelling of an address (RFC 5952) without a zone; an IPv4-mapped one is IPv4. */
export function canonicalAddress(text: string): string {
  const address = text.replace(/%.*$/, "");
  if (isIPv4(address)) return address;
  const parsed = new SocketAddress({ address, family: "ipv6" });
  return mappedIPv4(parsed)?.address ?? parsed.address;
}

const MAPPED_PREFIX = /^::ffff:(?=\d+\.)/i;

/** An IPv4 address as it is, where the kernel has it from a socket that accepts both families (RFC 4291 §2.5.5.2). */
export function withoutMapping(address: string): string {
  return address.replace(MAPPED_PREFIX, "");
}

/**
 * The network by which connections from this address are counted: an IPv4 address itself, and the first 64 bits of an
 * IPv6 address (RFC 4291 §2.5.4), because one host can use all addresses with these bits.
 */
export function networkOf(address: string): string {
  if (!isIPv6(address) || address.includes(".")) return withoutMapping(address);
  const groups = groupsOf(address).slice(0, 4);
  return groups.map((group) => group.toString(16)).join(":");
}

/** A form of IPv6 address that a gateway on the path translates to an IPv4 address. */
interface Embedding {
  /** The position of `bytes`, which mark this form. */
  readonly from: number;
  readonly bytes: readonly number[];
  /** The positions of the four bytes of the IPv4 address; some forms have several. */
  readonly at: readonly (readonly [number, number, number, number])[];
  /** Each bit of the IPv4 address is inverted. */
  readonly inverted?: boolean;
}

const LAST_FOUR = [12, 13, 14, 15] as const;

const EMBEDDINGS: readonly Embedding[] = [
  // NAT64, the well-known prefix 64:ff9b::/96 (RFC 6052 §2.1).
  { from: 0, bytes: [0x00, 0x64, 0xff, 0x9b, 0, 0, 0, 0, 0, 0, 0, 0], at: [LAST_FOUR] },
  // NAT64 for local use, 64:ff9b:1::/48 (RFC 8215): networks use a /48, /56, /64 or /96 of it, and byte 8 is not part
  // of the address (RFC 6052 §2.2).
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
 * The IPv4 addresses to which an IPv6 address may lead. All readings of a form are returned, because a rule that denies
 * an address denies every path to it.
 */
export function embeddedIPv4(address: SocketAddress): SocketAddress[] {
  if (address.family !== "ipv6") return [];
  const bytes = addressBytes(address.address);
  return EMBEDDINGS.filter((embedding) => embedding.bytes.every((byte, i) => byte === bytes[embedding.from + i]))
    .flatMap(({ at, inverted }) => at.map((positions) => ipv4At(bytes, positions, inverted)))
    .filter((found) => found !== undefined);
}

function ipv4At(bytes: Uint8Array, positions: readonly number[], inverted = false): SocketAddress | undefined {
  const text = positions.map((position) => (bytes[position] ?? 0) ^ (inverted ? 0xff : 0)).join(".");
  // A reading that is not meant, and `::1`, give an address in 0.0.0.0/8.
  return text.startsWith("0.") ? undefined : dialledAddress(text);
}

/** The 4 or 16 bytes of an IP address. A zone is ignored. */
export function addressBytes(address: string): Uint8Array {
  if (isIPv4(address)) return Uint8Array.from(address.split(".").map(Number));
  return Uint8Array.from(groupsOf(address).flatMap((group) => [group >>> 8, group & 0xff]));
}

/** The eight groups of an IPv6 address, without its zone. */
function groupsOf(address: string): number[] {
  const [before = "", after] = address.replace(/%.*$/, "").split("::");
  const head = parseGroups(before);
  if (after === undefined) return head;
  const tail = parseGroups(after);
  return [...head, ...new Array<number>(8 - head.length - tail.length).fill(0), ...tail];
}

function parseGroups(part: string): number[] {
  if (part === "") return [];
  return part.split(":").flatMap((group) => (isIPv4(group) ? pairsOf(group) : [Number.parseInt(group, 16)]));
}

/** The last four bytes may be written as an IPv4 address (RFC 4291 §2.2). */
function pairsOf(dotted: string): [number, number] {
  const [a = 0, b = 0, c = 0, d = 0] = dotted.split(".").map(Number);
  return [a * 256 + b, c * 256 + d];
}

/** Values by network. The longest prefix that covers an address is found first. */
export class NetworkMap<T> {
  readonly #ipv4 = new Map<number, Map<string, T>>();
  readonly #ipv6 = new Map<number, Map<string, T>>();

  /** `network` is canonical: `10.0.0.0/8` (`formatNetwork`). */
  get(network: string): T | undefined {
    const { address, prefix } = split(network);
    return this.#family(address).get(prefix)?.get(keyOf(address, prefix));
  }

  set(network: string, value: T): void {
    const { address, prefix } = split(network);
    const family = this.#family(address);
    let values = family.get(prefix);
    if (values === undefined) {
      values = new Map();
      family.set(prefix, values);
      sortByPrefix(family);
    }
    values.set(keyOf(address, prefix), value);
  }

  delete(network: string): void {
    const { address, prefix } = split(network);
    const family = this.#family(address);
    const values = family.get(prefix);
    values?.delete(keyOf(address, prefix));
    if (values?.size === 0) family.delete(prefix);
  }

  /** The values of the networks that the address is in, the longest prefix first. */
  *covering(address: string): Generator<T> {
    for (const [prefix, values] of this.#family(address)) {
      const value = values.get(keyOf(address, prefix));
      if (value !== undefined) yield value;
    }
  }

  #family(address: string): Map<number, Map<string, T>> {
    return isIPv4(address) ? this.#ipv4 : this.#ipv6;
  }
}

/** A new prefix comes last in the map; there are at most 129. */
function sortByPrefix<T>(family: Map<number, Map<string, T>>): void {
  const sorted = [...family].sort(([one], [other]) => other - one);
  family.clear();
  for (const [prefix, values] of sorted) family.set(prefix, values);
}

function split(network: string): { readonly address: string; readonly prefix: number } {
  const slash = network.indexOf("/");
  return { address: network.slice(0, slash), prefix: Number(network.slice(slash + 1)) };
}

function keyOf(address: string, prefix: number): string {
  return Buffer.from(maskedBytes(address, prefix)).toString("latin1");
}
