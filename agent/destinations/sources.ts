import { BlockList, isIPv4 } from "node:net";
import { networkInterfaces } from "node:os";
import { canonicalAddress, LOOPBACK, parseCidr } from "../../shared/address/network.ts";
import { machineAddresses } from "../../shared/address/special-addresses.ts";

/**
 * The sources from which connections are taken: the addresses of this node, and networks that the operator names. A
 * neighbour with a route through this node reaches an address of scope host, too.
 */
export class AllowedSources {
  readonly #list = new BlockList();
  readonly #machineAddresses: () => readonly string[];

  constructor(cidrs: readonly string[], addresses: () => readonly string[] = machineAddresses) {
    this.#machineAddresses = addresses;
    for (const text of [...LOOPBACK, ...cidrs]) {
      const { network, prefix } = parseCidr(text, "--bind-allow-source");
      this.#list.addSubnet(network, prefix);
    }
  }

  /** `source`: as a socket has it. Throws when file descriptors run out, for which the addresses are read. */
  includes(source: string): boolean {
    if (source === "") return false; // it has gone already
    const address = canonicalAddress(source);
    if (this.#list.check(address, isIPv4(address) ? "ipv4" : "ipv6")) return true;
    return this.#machineAddresses().some((mine) => canonicalAddress(mine) === address);
  }
}

/** Address, network and kind of an interface, as `os.networkInterfaces()` says them. */
interface InterfaceAddress {
  readonly cidr: string | null;
  readonly internal: boolean;
}

/** Why other hosts could reach a listener at this address, as the end of a sentence; `undefined`: they could not. */
export function reachability(
  address: string,
  interfaces: Readonly<Record<string, readonly InterfaceAddress[] | undefined>> = networkInterfaces(),
): string | undefined {
  const bare = canonicalAddress(address);
  if (bare === "0.0.0.0" || bare === "::") return "it stands for all addresses of this node";
  for (const [name, addresses = []] of Object.entries(interfaces)) {
    for (const { cidr, internal } of addresses) {
      if (internal || cidr === null) continue;
      const { network, prefix } = parseCidr(cidr);
      const list = new BlockList();
      list.addSubnet(network, prefix);
      if (list.check(bare, isIPv4(bare) ? "ipv4" : "ipv6")) return `it is in ${cidr}, the network of ${name}`;
    }
  }
  return undefined;
}
