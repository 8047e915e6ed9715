import { BlockList, isIP, isIPv4 } from "node:net";
import { parseNetwork } from "../../shared/address/network.ts";

/** The networks that connections may come from. */
export class SourceCidrs {
  /** As they were written. */
  readonly texts: readonly string[];
  readonly #list = new BlockList();

  /** Throws a sentence about the first text that is no network. */
  constructor(texts: readonly string[]) {
    this.texts = texts;
    for (const text of texts) {
      const { network, prefix } = parseCidr(text);
      this.#list.addSubnet(network, prefix);
    }
    Object.freeze(this);
  }

  /** `address` as a socket says it: with the zone of a link-local one, and IPv4-mapped where the listener is IPv6. */
  includes(address: string): boolean {
    const bare = address.replace(/%.*$/, "");
    return isIP(bare) !== 0 && this.#list.check(bare, isIPv4(bare) ? "ipv4" : "ipv6");
  }
}

function parseCidr(text: string): ReturnType<typeof parseNetwork> {
  const refuse = (why: string) => new Error(`the network "${text}": ${why} (write for example 10.0.0.0/8 or fd00::/8)`);
  const slash = text.indexOf("/");
  const address = slash < 0 ? text : text.slice(0, slash);
  if (isIP(address) === 0) throw refuse(`"${address}" is not an IP address`);
  return parseNetwork(address, slash < 0 ? undefined : text.slice(slash + 1), refuse);
}
