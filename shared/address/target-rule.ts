import { BlockList, isIP, isIPv6, type SocketAddress } from "node:net";
import { matchesWildcard } from "../basics/text.ts";
import { parseNetwork } from "./network.ts";

interface PortRange {
  /** The rule as it was written, for messages. */
  readonly text: string;
  readonly low: number;
  readonly high: number;
}

/**
 * One rule about targets. An address rule matches the address that is dialled, a host rule the host that the caller
 * asked for.
 */
export type Rule = AddressRule | HostRule;

export interface AddressRule extends PortRange {
  readonly kind: "address";
  readonly network: SocketAddress;
  readonly prefix: number;
  readonly list: BlockList;
}

export interface HostRule extends PortRange {
  readonly kind: "host";
  /** The parts of the pattern between its stars, in lower case. `["", ""]` is `*`, which also matches addresses. */
  readonly pieces: readonly string[];
}

/**
 * Parses a CIDR, an address or a host pattern, with an optional `:port` or `:low-high`. Throws an `Error` whose
 * sentence begins with `name`, the flag or the key that holds the rule.
 */
export function parseRule(text: string, name: string): Rule {
  const refuse = (why: string) =>
    new Error(`${name} "${text}": ${why} (write for example 10.0.0.0/8:443, [fd00::/8]:1-1024 or *.svc)`);
  const rule = text.trim();
  if (rule === "") throw refuse("it is empty");

  const bracketed = /^\[([^\]]*)\](\/[^:]*)?(?::(.*))?$/.exec(rule);
  const colons = rule.split(":").length - 1;
  if (bracketed === null && /[[\]]/.test(rule)) throw refuse("brackets go round an IPv6 address or network");
  const [host, ports] =
    bracketed !== null
      ? [`${bracketed[1]}${bracketed[2] ?? ""}`, bracketed[3]]
      : colons === 1
        ? [rule.slice(0, rule.indexOf(":")), rule.slice(rule.indexOf(":") + 1)]
        : [rule, undefined];
  const range = parsePorts(ports, refuse);

  const slash = host.indexOf("/");
  const address = slash < 0 ? host : host.slice(0, slash);
  if (bracketed !== null && !isIPv6(address)) throw refuse("brackets are for IPv6 addresses and networks only");
  if (isIP(address) !== 0) {
    const { network, prefix } = parseNetwork(address, slash < 0 ? undefined : host.slice(slash + 1), refuse);
    const list = new BlockList();
    list.addSubnet(network, prefix);
    return { kind: "address", text: rule, ...range, network, prefix, list };
  }
  if (slash >= 0) throw refuse(`"${address}" is not an IP address, so it has no prefix length`);
  if (colons > 1) throw refuse("this is not an IPv6 address; one with a port needs brackets");
  return { kind: "host", text: rule, ...range, pieces: parsePattern(address, refuse) };
}

function matchesPort(rule: Rule, port: number): boolean {
  return port >= rule.low && port <= rule.high;
}

export function matchesAddress(rule: AddressRule, address: SocketAddress): boolean {
  return rule.list.check(address);
}

/** `host` is in lower case, without a final dot. Only the pattern `*` matches a literal address. */
function matchesHost(rule: HostRule, host: string): boolean {
  const { pieces } = rule;
  const any = pieces.length === 2 && pieces.every((piece) => piece === "");
  return any || (isIP(host) === 0 && matchesWildcard(pieces, host));
}

/** Does the rule cover this port of this host and address? Without an address only host rules can match. */
export function matchesRule(rule: Rule, host: string, address: SocketAddress | undefined, port: number): boolean {
  if (!matchesPort(rule, port)) return false;
  if (rule.kind === "host") return matchesHost(rule, host);
  return address !== undefined && matchesAddress(rule, address);
}

type Refuse = (why: string) => Error;

function parsePorts(text: string | undefined, refuse: Refuse): { low: number; high: number } {
  if (text === undefined) return { low: 1, high: 65535 };
  const found = /^([0-9]{1,5})(?:-([0-9]{1,5}))?$/.exec(text.trim());
  const low = Number(found?.[1]);
  const high = Number(found?.[2] ?? found?.[1]);
  if (found === null || low < 1 || high > 65535)
    throw refuse(`"${text}" is neither a port from 1 to 65535 nor a range`);
  if (low > high) throw refuse(`the range of ports ${text} is upside down`);
  return { low, high };
}

function parsePattern(pattern: string, refuse: Refuse): string[] {
  const name = pattern.toLowerCase().replace(/\.$/, "");
  if (name === "") throw refuse('it has no host; "*" stands for any');
  if (!/^[a-z0-9_.*-]+$/.test(name)) throw refuse(`"${pattern}" is neither an address nor a host name`);
  if (name.includes("..") || name.startsWith("."))
    throw refuse(`"${pattern}" has an empty label; write "*.svc", not ".svc"`);
  // A target never ends in a number (address/target.ts refuses it), so an address was meant.
  if (/(?:^|\.)[0-9]+$/.test(name) || /^[0-9.]+\*[0-9.*]*$/.test(name)) {
    throw refuse("this looks like an IPv4 address but is not one; a network is written as a CIDR, like 10.0.0.0/16");
  }
  return name.split("*");
}
