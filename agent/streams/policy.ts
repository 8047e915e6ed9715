import { BlockList, isIPv4, type SocketAddress } from "node:net";
import { networkInterfaces } from "node:os";
import { dialledAddress, embeddedIPv4 } from "../../shared/address/network.ts";
import { type AddressRule, matchesRule, parseRule, type Rule } from "../../shared/address/target.ts";

export interface PolicyOptions {
  readonly allow: readonly string[];
  readonly deny: readonly string[];
  /** This machine's loopback may be dialled. */
  readonly allowLoopback: boolean;
  /** Where this agent listens, as `server.address()` says it; a wildcard stands for each address of the machine. */
  readonly ownListeners?: () => readonly { readonly address: string; readonly port: number }[];
  readonly machineAddresses?: () => readonly string[];
}

/** What is about to be dialled: the host that was asked for and the address that it resolved to. */
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
    this.#special = options.allowLoopback ? SPECIAL.filter(({ kind }) => kind !== "loopback") : SPECIAL;
    this.#ownListeners = options.ownListeners ?? (() => []);
    this.#machineAddresses = options.machineAddresses ?? interfaceAddresses;
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

    if (this.#isOwnListener(address, port)) return "it is a listener of the agent itself";
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

  /** A listener on all addresses is reached by loopback and by each address of the machine. */
  #isOwnListener(address: SocketAddress, port: number): boolean {
    return this.#ownListeners().some((own) => {
      if (own.port !== port) return false;
      if (own.address !== "0.0.0.0" && own.address !== "::") return equal(dialledAddress(own.address), address);
      return isLoopback(address) || this.#machineAddresses().some((mine) => equal(dialledAddress(mine), address));
    });
  }
}

/** Addresses that are refused unless a rule names them. */
interface SpecialRange {
  readonly kind: "loopback" | "link-local" | "cloud-metadata";
  readonly prefix: number;
  readonly list: BlockList;
}

/** RFC 1122 §3.2.1.3, RFC 4291 §2.5.3; the kernel dials it for the unspecified address, too (`dialledAddress`). */
const LOOPBACK_RANGES = [special("loopback", "127.0.0.0", 8), special("loopback", "::1", 128)];

const SPECIAL: readonly SpecialRange[] = [
  ...LOOPBACK_RANGES,
  // RFC 3927, RFC 4291 §2.5.6.
  special("link-local", "169.254.0.0", 16),
  special("link-local", "fe80::", 10),
  // Where clouds hand out credentials of the machine, outside the link-local ranges.
  special("cloud-metadata", "fd00:ec2::", 32), // AWS
  special("cloud-metadata", "fd20:ce::254", 128), // Google Cloud
  special("cloud-metadata", "fd00:42::42", 128), // Scaleway
  special("cloud-metadata", "100.100.100.200", 32), // Alibaba
  special("cloud-metadata", "192.0.0.192", 32), // Oracle
  special("cloud-metadata", "168.63.129.16", 32), // Azure
];

function special(kind: SpecialRange["kind"], network: string, prefix: number): SpecialRange {
  const list = new BlockList();
  list.addSubnet(network, prefix, isIPv4(network) ? "ipv4" : "ipv6");
  return { kind, prefix, list };
}

function isLoopback(address: SocketAddress): boolean {
  return LOOPBACK_RANGES.some(({ list }) => list.check(address));
}

function isSingle(rule: AddressRule): boolean {
  return rule.prefix === (rule.network.family === "ipv4" ? 32 : 128);
}

/** A rule about one address, or about a network no wider than the range that is refused. */
function names(rule: Rule, range: SpecialRange): boolean {
  if (rule.kind === "host") return false;
  return isSingle(rule) || (range.list.check(rule.network) && rule.prefix >= range.prefix);
}

function equal(one: SocketAddress | undefined, other: SocketAddress): boolean {
  return one?.address === other.address;
}

function interfaceAddresses(): string[] {
  return Object.values(networkInterfaces()).flatMap((entries) => (entries ?? []).map((entry) => entry.address));
}
