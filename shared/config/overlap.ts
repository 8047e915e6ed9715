import { isIP, isIPv4, isIPv6, SocketAddress } from "node:net";

/** The addresses that stand for all of a host; Node takes "::" for an empty one, and IPv4 comes to it, too. */
const ALL = "::";
const ALL_IPV4 = "0.0.0.0";

/** Can two listeners not have the same port on these bind addresses? A name is taken for itself alone. */
export function overlap(one: string, other: string): boolean {
  const [a, b] = [canonical(one), canonical(other)];
  if (a === b || a === ALL || b === ALL) return true;
  return (a === ALL_IPV4 && !isIPv6(b)) || (b === ALL_IPV4 && !isIPv6(a));
}

function canonical(address: string): string {
  if (address === "") return ALL;
  if (isIP(address) === 0) return address.toLowerCase();
  if (isIPv4(address)) return address;
  const { address: plain } = new SocketAddress({ address, family: "ipv6" });
  return /^::ffff:(\d+\.\d+\.\d+\.\d+)$/.exec(plain)?.[1] ?? plain + zoneOf(address);
}

/** Which link a link-local address is of; others are the same on each. */
function zoneOf(address: string): string {
  return /^fe[89ab].:.*(%.+)$/i.exec(address)?.[1] ?? "";
}
