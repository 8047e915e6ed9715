import { isIPv6 } from "node:net";

/** How the kernel writes an IPv4 address on a socket that takes both (RFC 4291 §2.5.5.2). */
const V4_ON_V6 = /^::ffff:(?=\d+\.)/i;

/**
 * The network that an address counts as, where connections are counted by where they come from: an IPv4 address itself,
 * and the first 64 bits of an IPv6 one (RFC 4291 §2.5.4), since one host has as many of those addresses as it likes.
 */
export function networkOf(address: string): string {
  if (!isIPv6(address) || address.includes(".")) return address.replace(V4_ON_V6, "");
  const [front = "", back] = address.toLowerCase().split("::");
  const [before, after] = [front, back ?? ""].map((half) => half.split(":").filter((group) => group !== ""));
  const zeros = back === undefined ? 0 : 8 - (before?.length ?? 0) - (after?.length ?? 0);
  return [...(before ?? []), ...Array<string>(zeros).fill("0"), ...(after ?? [])].slice(0, 4).join(":");
}
