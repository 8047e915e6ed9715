import type { Target } from "../../shared/address/target.ts";
import { addressKey } from "./server-addresses.ts";
import { formatServer, type ServerLocation } from "./servers.ts";

/**
 * The ways to the servers of one URL: the addresses that DNS has for it, or the name as it is where there is no choice.
 * An address may lead to one server, or through a balancer to one of many. Pure.
 */
export class Endpoints {
  readonly location: ServerLocation;
  /** How logs, metrics and `/status` call it. */
  readonly name: string;
  #addresses: readonly Target[] = [];
  /** Addresses that have led to a server that the agent had a tunnel to. */
  readonly #known = new Set<string>();
  /** The number of the last try of each address. */
  readonly #tried = new Map<string, number>();
  readonly #random: () => number;
  #tries = 0;

  constructor(location: ServerLocation, random: () => number = Math.random) {
    this.location = location;
    this.name = formatServer(location);
    this.#random = random;
  }

  /** Takes what DNS says now. Returns true where an address is new. */
  update(addresses: readonly Target[]): boolean {
    const before = new Set(this.#addresses.map(addressKey));
    const now = new Set(addresses.map(addressKey));
    // Each agent has an order of its own, or all of them would choose the same servers.
    const kept = this.#addresses.filter((address) => now.has(addressKey(address)));
    const added = addresses.filter((address) => !before.has(addressKey(address)));
    this.#addresses = [...kept, ...shuffled(added, this.#random)];
    for (const key of [...this.#tried.keys(), ...this.#known]) {
      if (now.has(key)) continue;
      this.#tried.delete(key);
      this.#known.delete(key);
    }
    return added.length > 0;
  }

  /** SRV records say what to dial, and none is known. Behind a proxy they are not asked for. */
  get needsRecords(): boolean {
    return this.location.srv !== undefined && this.#addresses.length === 0;
  }

  /** How many servers there may be behind the addresses. `held`: those through which the agent has a tunnel. */
  distinct(held: ReadonlySet<string>): number {
    const may = this.#addresses.filter((address) => held.has(addressKey(address)) || !this.#isKnown(address));
    return Math.max(1, may.length);
  }

  /**
   * What to dial next; `undefined`: the name, as it is. `held`: addresses that others are connected through or dial
   * now.
   * `isFirst`: the agent has no tunnel, and any server is good, so that the name with all its addresses serves best.
   */
  choose(held: ReadonlySet<string>, isFirst: boolean): Target | undefined {
    const isName = this.location.srv === undefined;
    if (isName && (isFirst || this.#addresses.length < 2)) return undefined;
    const free = this.#addresses.filter((address) => !held.has(addressKey(address)) && !this.#isKnown(address));
    // Where none is left, any of them may be a balancer's.
    const [next] = (free.length > 0 ? free : this.#addresses).toSorted(
      (one, other) => this.#triedAt(one) - this.#triedAt(other),
    );
    if (next !== undefined) this.#tried.set(addressKey(next), ++this.#tries);
    return next;
  }

  /** The address has led to a server that the agent has a tunnel to. */
  ledToKnown(address: Target | undefined): void {
    if (address !== undefined) this.#known.add(addressKey(address));
  }

  /** A server was lost: an address that has led to it may lead to another one now. */
  forget(): void {
    this.#known.clear();
  }

  #isKnown(address: Target): boolean {
    return this.#known.has(addressKey(address));
  }

  #triedAt(address: Target): number {
    return this.#tried.get(addressKey(address)) ?? 0;
  }
}

function shuffled<T>(values: readonly T[], random: () => number): T[] {
  return values
    .map((value) => [random(), value] as const)
    .toSorted(([one], [other]) => one - other)
    .map(([, value]) => value);
}
