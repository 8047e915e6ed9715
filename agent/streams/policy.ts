import { dialledAddress, embeddedIPv4 } from "../../shared/address/network.ts";
import {
  isOwnListener,
  type ListeningAddress,
  machineAddresses,
  SPECIAL_RANGES,
  type SpecialRange,
} from "../../shared/address/special-addresses.ts";
import { type AddressRule, matchesRule, parseRule, type Rule } from "../../shared/address/target.ts";

export interface PolicyOptions {
  readonly allow: readonly string[];
  readonly deny: readonly string[];
  /** This machine's loopback may be dialled. */
  readonly allowLoopback: boolean;
  /** The listening addresses of this agent, from `server.address()`; a wildcard means each address of the machine. */
  readonly ownListeners?: () => readonly ListeningAddress[];
  readonly machineAddresses?: () => readonly string[];
}

/** A target before it is dialled: the host that was asked for, and the address that it resolved to. */
export interface ResolvedTarget {
  readonly host: string;
  readonly address: string;
  readonly port: number;
}

/**
 * Which targets an agent may dial, decided after resolution by the address that is dialled.
 *
 * The agent's own listeners are never allowed. Deny wins over allow. As soon as there is one allow rule, only what an
 * allow rule matches is allowed. Loopback, link-local and cloud-metadata addresses are refused by default. An allow
 * rule lifts that only if it names addresses and is no wider than what is refused: `0.0.0.0/0:10250` is written by
 * people who mean "any node", not the credentials of the machine.
 */
export class TargetPolicy {
  readonly #allow: readonly Rule[];
  readonly #deny: readonly Rule[];
  readonly #special: readonly SpecialRange[];
  readonly #ownListeners: NonNullable<PolicyOptions["ownListeners"]>;
  readonly #machineAddresses: () => readonly string[];

  constructor(options: PolicyOptions) {
    this.#allow = options.allow.map((text) => parseRule(text, "--allow-target"));
    this.#deny = options.deny.map((text) => parseRule(text, "--deny-target"));
    this.#special = options.allowLoopback ? SPECIAL_RANGES.filter(({ kind }) => kind !== "loopback") : SPECIAL_RANGES;
    this.#ownListeners = options.ownListeners ?? (() => []);
    this.#machineAddresses = options.machineAddresses ?? machineAddresses;
  }

  /** The reason why this target may not be dialled, as the end of a sentence; `undefined` if it may. */
  refusal(destination: ResolvedTarget): string | undefined {
    const { port } = destination;
    const address = dialledAddress(destination.address);
    if (address === undefined) return `"${destination.address}" is not an IP address`;
    const host = destination.host.toLowerCase().replace(/\.$/, "");

    const denied = this.#deny.find((rule) => matchesRule(rule, host, address, port));
    if (denied !== undefined) return `--deny-target ${denied.text} covers it`;
    const embedded = embeddedIPv4(address);
    const behind = this.#deny.find((rule) => embedded.some((inside) => matchesRule(rule, host, inside, port)));
    if (behind !== undefined) return `--deny-target ${behind.text} covers the IPv4 address in it`;

    if (isOwnListener(this.#ownListeners(), address, port, this.#machineAddresses)) {
      return "it is a listener of the agent itself";
    }
    if (this.#allow.length > 0 && !this.#allow.some((rule) => matchesRule(rule, host, address, port))) {
      return "no --allow-target of the agent covers it";
    }
    const special = this.#special.find(({ list }) => [address, ...embedded].some((each) => list.check(each)));
    if (
      special !== undefined &&
      !this.#allow.some((rule) => names(rule, special) && matchesRule(rule, host, address, port))
    ) {
      const unless = special.kind === "loopback" ? "--allow-loopback is given or --allow-target" : "--allow-target";
      return `${special.kind} addresses are refused unless ${unless} names them`;
    }
    return undefined;
  }
}

function isSingle(rule: AddressRule): boolean {
  return rule.prefix === (rule.network.family === "ipv4" ? 32 : 128);
}

/** A rule about one address, or about a network no wider than the range that is refused. */
function names(rule: Rule, range: SpecialRange): boolean {
  if (rule.kind === "host") return false;
  return isSingle(rule) || (range.list.check(rule.network) && rule.prefix >= range.prefix);
}
