import { BlockList, isIP, isIPv4, isIPv6, type SocketAddress } from "node:net";
import { matchesWildcard } from "../basics/text.ts";
import { CulvertError, printable } from "../outcomes.ts";
import { parseNetwork } from "./network.ts";
import { HOST_LABEL, NUMBER_LABEL } from "./server-name.ts";

/** A host and a port to connect to, for example those of a CONNECT request (RFC 9110 §9.3.6). */
export interface Target {
  /** A name or an IP address, without brackets. */
  readonly host: string;
  readonly port: number;
}

const MAX_LENGTH = 255;
const EXAMPLE = "write host:port, for example 10.0.0.1:10250";

/** Parses `host:port` or `[IPv6]:port`. Throws the outcome `bad_target` for anything else. */
export function parseTarget(authority: string | undefined): Target {
  if (authority === undefined || authority === "") throw bad(`the request names no target: ${EXAMPLE}`);
  if (authority.length > MAX_LENGTH) {
    throw bad(`the target is ${authority.length} bytes long, at most ${MAX_LENGTH} are allowed: ${EXAMPLE}`);
  }
  if (!/^[\x21-\x7e]+$/.test(authority)) {
    throw bad(`the target holds a space, a control byte or a byte outside ASCII: ${EXAMPLE}`);
  }
  if (/[/?#\\]/.test(authority)) throw bad(`${shown(authority)} is a URL or a path, not a target: ${EXAMPLE}`);
  if (authority.includes("@")) throw bad(`the target holds user information before an "@": leave it out`);

  const colon = authority.lastIndexOf(":");
  const host = colon < 0 ? authority : authority.slice(0, colon);
  if (colon < 0 || host.startsWith("[") !== host.endsWith("]")) {
    throw bad(`the target ${shown(authority)} has no port: ${EXAMPLE}`);
  }
  if (host === "") throw bad(`the target ${shown(authority)} has no host: ${EXAMPLE}`);
  const port = parsePort(authority.slice(colon + 1), authority);
  return { host: host.startsWith("[") ? parseBracketed(host) : parseName(host, authority), port };
}

/** The inverse of `parseTarget`, with brackets around an IPv6 address (RFC 3986 §3.2.2). */
export function formatTarget({ host, port }: Target): string {
  return `${bracketed(host)}:${port}`;
}

/** A host as it is written before a port: an IPv6 address in brackets. */
export function bracketed(host: string): string {
  return host.includes(":") ? `[${host}]` : host;
}

function parsePort(text: string, authority: string): number {
  if (text === "") throw bad(`the target ${shown(authority)} has no port: ${EXAMPLE}`);
  if (/^0+[1-9]/.test(text)) throw bad(`the port of ${shown(authority)} begins with 0: write it without`);
  if (!/^[0-9]{1,5}$/.test(text)) throw bad(`the port of ${shown(authority)} is not a number from 1 to 65535`);
  const port = Number(text);
  if (port === 0) throw bad(`port 0 of ${shown(authority)} cannot be dialled: name a port from 1 to 65535`);
  if (port > 65535) throw bad(`the port of ${shown(authority)} is not a number from 1 to 65535`);
  return port;
}

function parseBracketed(bracketed: string): string {
  const host = bracketed.slice(1, -1);
  // A zone is valid only on the machine that wrote it (RFC 4007 §6), and another machine dials.
  if (host.includes("%")) throw bad(`${shown(bracketed)} has a zone, which means nothing at the agent: leave it out`);
  if (!isIPv6(host)) throw bad(`${shown(bracketed)} is not an IPv6 address: brackets are for those only`);
  return host;
}

function parseName(host: string, authority: string): string {
  if (isIPv4(host)) return host;
  if (host.includes(":")) throw bad(`write an IPv6 address in brackets, like [2001:db8::1]:443: ${shown(authority)}`);
  const labels = (host.endsWith(".") ? host.slice(0, -1) : host).split(".");
  if (!labels.every((label) => HOST_LABEL.test(label)) || host.length > 254) {
    throw bad(`${shown(host)} is neither an IP address nor a legal host name`);
  }
  if (NUMBER_LABEL.test(labels.at(-1) ?? "")) {
    throw bad(`${shown(host)} looks like an IPv4 address but is not one: write four decimal numbers with dots`);
  }
  return host;
}

/**
 * A requested authority as a log may show it: without user information and query (RFC 3986 §3.2.1, §3.4), which may
 * hold secrets.
 */
export function shownAuthority(authority: string, length?: number): string {
  return printable(authority.replace(/[?#].*$/s, "").replace(/^.*@/s, "...@"), length);
}

function shown(text: string): string {
  return `"${shownAuthority(text, 80)}"`;
}

function bad(message: string): CulvertError {
  return new CulvertError("bad_target", message);
}

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

interface HostRule extends PortRange {
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

/** `host` is in lower case, without a final dot. Only the pattern `*` matches a literal address. */
function matchesHost(rule: HostRule, host: string): boolean {
  const { pieces } = rule;
  const any = pieces.length === 2 && pieces.every((piece) => piece === "");
  return any || (isIP(host) === 0 && matchesWildcard(pieces, host));
}

/** Does the rule cover this port of this host and address? Without an address only host rules can match. */
export function matchesRule(rule: Rule, host: string, address: SocketAddress | undefined, port: number): boolean {
  if (port < rule.low || port > rule.high) return false;
  if (rule.kind === "host") return matchesHost(rule, host);
  return address !== undefined && rule.list.check(address);
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
