import { isIPv4 } from "node:net";
import { maskedBytes } from "./network.ts";

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
