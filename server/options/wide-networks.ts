import { parseNetwork } from "../../shared/address/network.ts";

/** The widest networks that are one's own: 10.0.0.0/8 (RFC 1918 §3) and fc00::/7 (RFC 4193 §3.1). */
const WIDEST_PREFIX = { ipv4: 8, ipv6: 7 } as const;

/** Those of these networks that are wider than anybody's own, and so hold a good part of the Internet. */
export function wideNetworks(cidrs: readonly string[]): string[] {
  return cidrs.filter((cidr) => {
    const [address = "", bits] = cidr.split("/");
    const { network, prefix } = parseNetwork(address, bits, (why) => new Error(why));
    return prefix < WIDEST_PREFIX[network.family === "ipv4" ? "ipv4" : "ipv6"];
  });
}
