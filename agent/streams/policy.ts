import { BlockList, isIPv4, isIPv6, SocketAddress } from "node:net";
import { networkInterfaces } from "node:os";
import {
  type AddressRule,
  mappedIPv4,
  matchesAddress,
  matchesHost,
  matchesPort,
  parseRule,
  type Rule,
} from "./rule.ts";

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
    const address = normalise(destination.address);
    if (address === undefined) return refuse(`"${destination.address}" is not an IP address`);
    const host = destination.host.toLowerCase().replace(/\.$/, "");

    const denied = this.#deny.find((rule) => matches(rule, host, address, port));
    if (denied !== undefined) return refuse(`--deny-target ${denied.text} covers it`);
    const embedded = embeddedIPv4(address);
    if (embedded !== undefined) {
      const behind = this.#deny.find((rule) => matches(rule, host, embedded, port));
      if (behind !== undefined) return refuse(`--deny-target ${behind.text} covers the IPv4 address in it`);
    }

    if (this.#isOwnListener(address, port) && !this.#allow.some((rule) => isExact(rule, address, port))) {
      return refuse("it is a listener of the agent itself");
    }
    const special = specialKind(address) ?? (embedded === undefined ? undefined : specialKind(embedded));
    if (special !== undefined && !this.#allow.some((rule) => isNarrow(rule) && matches(rule, host, address, port))) {
      return refuse(`${special} addresses are refused unless --allow-target names them`);
    }
    if (this.#allow.length > 0 && !this.#allow.some((rule) => matches(rule, host, address, port))) {
      return refuse("no --allow-target of the agent covers it");
    }
    return ALLOWED;
  }

  /** A listener on all addresses is reached by loopback and by each address of the machine. */
  #isOwnListener(address: SocketAddress, port: number): boolean {
    return this.#ownListeners().some((own) => {
      if (own.port !== port) return false;
      if (own.address !== "0.0.0.0" && own.address !== "::") return equal(normalise(own.address), address);
      return LOOPBACK.check(address) || this.#machineAddresses().some((mine) => equal(normalise(mine), address));
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

function matches(rule: Rule, host: string, address: SocketAddress, port: number): boolean {
  if (!matchesPort(rule, port)) return false;
  return rule.kind === "address" ? matchesAddress(rule, address) : matchesHost(rule, host);
}

function refuse(reason: string): Decision {
  return { allowed: false, reason };
}

/** Most connections of an agent go to a few kubelets and services, over and over. */
const KNOWN_ADDRESSES = 1_024;
const known = new Map<string, SocketAddress>();

/** As the kernel dials it: IPv4-mapped addresses are IPv4, the unspecified address is loopback. */
function normalise(text: string): SocketAddress | undefined {
  const found = known.get(text);
  const address = found ?? parseAddress(text);
  if (found !== undefined || address === undefined) return address;
  if (known.size >= KNOWN_ADDRESSES) known.clear();
  known.set(text, address);
  return address;
}

function parseAddress(text: string): SocketAddress | undefined {
  if (isIPv4(text)) return new SocketAddress({ address: text === "0.0.0.0" ? "127.0.0.1" : text, family: "ipv4" });
  if (!isIPv6(text)) return undefined;
  const address = new SocketAddress({ address: text.replace(/%.*$/, ""), family: "ipv6" });
  if (address.address === "::") return new SocketAddress({ address: "::1", family: "ipv6" });
  const mapped = mappedIPv4(address);
  return mapped?.address === "0.0.0.0" ? normalise(mapped.address) : (mapped ?? address);
}

/** The IPv4 address that a NAT64 gateway dials for an address of `64:ff9b::/96` (RFC 6052 §2.1). */
function embeddedIPv4(address: SocketAddress): SocketAddress | undefined {
  const found = /^64:ff9b::(?:([0-9a-f]{1,4}):)?([0-9a-f]{1,4})$/.exec(address.address);
  if (found === null) return undefined;
  const bits = Number.parseInt(found[1] ?? "0", 16) * 65536 + Number.parseInt(found[2] ?? "0", 16);
  return normalise([bits >>> 24, (bits >>> 16) & 255, (bits >>> 8) & 255, bits & 255].join("."));
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
