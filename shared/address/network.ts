import { isIPv4, isIPv6, SocketAddress } from "node:net";

/** This host and nobody else (RFC 1122 §3.2.1.3, RFC 4291 §2.5.3). */
export const LOOPBACK = ["127.0.0.0/8", "::1/128"] as const;

/** A range of addresses; an IPv4-mapped one is the IPv4 one. */
export interface Network {
  readonly network: SocketAddress;
  readonly prefix: number;
}

/** An IP address and, after its slash, how many bits of it count; throws what `refuse` makes of a sentence. */
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

/** Most connections go to a few kubelets and services, over and over. */
const KNOWN_ADDRESSES = 1_024;
const known = new Map<string, SocketAddress>();

/** As the kernel dials it: IPv4-mapped addresses are IPv4, the unspecified address is loopback; `undefined` for a name. */
export function dialledAddress(text: string): SocketAddress | undefined {
  const found = known.get(text);
  const address = found ?? parseAddress(text);
  if (found !== undefined || address === undefined) return address;
  if (known.size >= KNOWN_ADDRESSES) known.clear();
  known.set(text, address);
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

/** The IPv4 address in `::ffff:0:0/96` (RFC 4291 §2.5.5.2): the kernel dials that one. */
function mappedIPv4(address: SocketAddress): SocketAddress | undefined {
  if (address.family !== "ipv6" || !address.address.startsWith("::ffff:")) return undefined;
  const dotted = address.address.slice(7);
  return isIPv4(dotted) ? new SocketAddress({ address: dotted, family: "ipv4" }) : undefined;
}
