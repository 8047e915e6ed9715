import { BlockList, isIPv4, type SocketAddress } from "node:net";
import { networkInterfaces } from "node:os";
import { dialledAddress, embeddedIPv4 } from "../../shared/net/network.ts";
import { type AddressRule, matchesAddress, matchesRule, parseRule, type Rule } from "../../shared/net/target-rule.ts";

export interface PolicyOptions {
  readonly allow: readonly string[];
  readonly deny: readonly string[];
  /** Where this agent listens, as `server.address()` says it; a wildcard stands for each address of the machine. */
  readonly ownListeners?: () => readonly { readonly address: string; readonly port: number }[];
  readonly machineAddresses?: () => readonly string[];
}

/** What is about to be dialled: the host that was asked for and the address that it resolved to. */
export interface Destination {
  readonly host: string;
  readonly address: string;
  readonly port: number;
}

export type Decision = { readonly allowed: true } | { readonly allowed: false; readonly reason: string };

/**
 * Which targets an agent may dial, judged after resolution on the address that is dialled (design: "Trust").
 *
 * Deny wins over allow. As soon as there is one allow rule, only what an allow rule matches is allowed. Link-local and
 * cloud-metadata addresses, and the agent's own listeners, are refused by default. An allow rule lifts that only if it
 * names addresses and is no wider than what is refused: `0.0.0.0/0:10250` is written by people who mean "any node", not
 * the credentials of the machine.
 */
export class TargetPolicy {
  readonly #allow: readonly Rule[];
  readonly #deny: readonly Rule[];
  readonly #ownListeners: NonNullable<PolicyOptions["ownListeners"]>;
  readonly #machineAddresses: () => readonly string[];

  constructor(options: PolicyOptions) {
    this.#allow = options.allow.map((text) => parseRule(text, "--allow-target"));
    this.#deny = options.deny.map((text) => parseRule(text, "--deny-target"));
    this.#ownListeners = options.ownListeners ?? (() => []);
    this.#machineAddresses = options.machineAddresses ?? interfaceAddresses;
  }

  decide(destination: Destination): Decision {
    const { port } = destination;
    const address = dialledAddress(destination.address);
    if (address === undefined) return refuse(`"${destination.address}" is not an IP address`);
    const host = destination.host.toLowerCase().replace(/\.$/, "");

    const denied = this.#deny.find((rule) => matchesRule(rule, host, address, port));
    if (denied !== undefined) return refuse(`--deny-target ${denied.text} covers it`);
    const embedded = embeddedIPv4(address);
    if (embedded !== undefined) {
      const behind = this.#deny.find((rule) => matchesRule(rule, host, embedded, port));
      if (behind !== undefined) return refuse(`--deny-target ${behind.text} covers the IPv4 address in it`);
    }

    if (this.#isOwnListener(address, port) && !this.#allow.some((rule) => isExact(rule, address, port))) {
      return refuse("it is a listener of the agent itself");
    }
    const special = specialKind(address) ?? (embedded === undefined ? undefined : specialKind(embedded));
    if (
      special !== undefined &&
      !this.#allow.some((rule) => isNarrow(rule) && matchesRule(rule, host, address, port))
    ) {
      return refuse(`${special} addresses are refused unless --allow-target names them`);
    }
    if (this.#allow.length > 0 && !this.#allow.some((rule) => matchesRule(rule, host, address, port))) {
      return refuse("no --allow-target of the agent covers it");
    }
    return ALLOWED;
  }

  /** A listener on all addresses is reached by loopback and by each address of the machine. */
  #isOwnListener(address: SocketAddress, port: number): boolean {
    return this.#ownListeners().some((own) => {
      if (own.port !== port) return false;
      if (own.address !== "0.0.0.0" && own.address !== "::") return equal(dialledAddress(own.address), address);
      return LOOPBACK.check(address) || this.#machineAddresses().some((mine) => equal(dialledAddress(mine), address));
    });
  }
}

const ALLOWED: Decision = { allowed: true };
const LOOPBACK = blockList([
  ["127.0.0.0", 8],
  ["::1", 128],
]);
/** RFC 3927, RFC 4291 §2.5.6. */
const LINK_LOCAL = blockList([
  ["169.254.0.0", 16],
  ["fe80::", 10],
]);
/** Where clouds hand out credentials of the machine, outside the link-local ranges. */
const METADATA = blockList([
  ["fd00:ec2::254", 128], // AWS
  ["fd20:ce::254", 128], // Google Cloud
  ["fd00:42::42", 128], // Scaleway
  ["100.100.100.200", 32], // Alibaba
  ["192.0.0.192", 32], // Oracle
  ["168.63.129.16", 32], // Azure
]);

function specialKind(address: SocketAddress): string | undefined {
  if (LINK_LOCAL.check(address)) return "link-local";
  return METADATA.check(address) ? "cloud-metadata" : undefined;
}

function isSingle(rule: AddressRule): boolean {
  return rule.prefix === (rule.network.family === "ipv4" ? 32 : 128);
}

/** A rule no wider than the refused range that its network lies in. */
function isNarrow(rule: Rule): boolean {
  if (rule.kind === "host") return false;
  return (
    isSingle(rule) || (LINK_LOCAL.check(rule.network) && rule.prefix >= (rule.network.family === "ipv4" ? 16 : 10))
  );
}

/** A rule that names this one address and this one port. */
function isExact(rule: Rule, address: SocketAddress, port: number): boolean {
  return (
    rule.kind === "address" &&
    isSingle(rule) &&
    rule.low === port &&
    rule.high === port &&
    matchesAddress(rule, address)
  );
}

function refuse(reason: string): Decision {
  return { allowed: false, reason };
}

function equal(one: SocketAddress | undefined, other: SocketAddress): boolean {
  return one?.address === other.address;
}

function blockList(networks: readonly (readonly [string, number])[]): BlockList {
  const list = new BlockList();
  for (const [network, prefix] of networks) list.addSubnet(network, prefix, isIPv4(network) ? "ipv4" : "ipv6");
  return list;
}

function interfaceAddresses(): string[] {
  return Object.values(networkInterfaces()).flatMap((entries) => (entries ?? []).map((entry) => entry.address));
}
