import { BlockList, isIP } from "node:net";
import { domainToASCII } from "node:url";
import { type Network, parseNetwork } from "../address/network.ts";
import type { Target } from "../address/target.ts";

/**
 * Does NO_PROXY keep this destination from every proxy? As Go's golang.org/x/net/http/httpproxy reads it: entries between
 * commas, each an IP address, a network in CIDR notation, a name (itself and what is below it), `.name` or `*.name` (only
 * what is below it), all but networks with a port if wanted, or `*`. What is none of these matches nothing. This machine
 * itself is never reached through a proxy.
 */
export function bypassesProxy(noProxy: string, { host, port }: Target): boolean {
  const name = toASCII(host.toLowerCase().trim());
  const address = parseIP(name.replace(/%.*$/, ""));
  if (name === "localhost" || (address !== undefined && LOOPBACK.some((network) => contains(network, address)))) {
    return true;
  }
  return noProxy.split(",").some((entry) => covers(entry.trim().toLowerCase(), name, port, address));
}

function covers(entry: string, name: string, port: number, address: Network | undefined): boolean {
  if (entry === "") return false;
  if (entry === "*") return true;
  const network = parseCIDR(entry);
  if (network !== undefined) return address !== undefined && contains(network, address);

  const [host, portText] = splitHostPort(entry);
  if (host === "" || (portText !== "" && portText !== String(port))) return false;
  const single = parseIP(host);
  if (single !== undefined) return address !== undefined && contains(single, address);
  return address === undefined && isBelow(name, host);
}

/** Names with and without a dot before them. */
function isBelow(name: string, pattern: string): boolean {
  const suffix = toASCII(pattern.startsWith("*.") ? pattern.slice(1) : pattern);
  return suffix.startsWith(".") ? name.endsWith(suffix) : name === suffix || name.endsWith(`.${suffix}`);
}

/** Go's net.SplitHostPort: what it refuses (no port, an IPv6 address without brackets) is a host as a whole. */
function splitHostPort(entry: string): readonly [host: string, port: string] {
  const match = /^(?:\[([^[\]]*)\]|([^:[\]]*)):([^:[\]]*)$/.exec(entry);
  return match === null ? [entry, ""] : [match[1] ?? match[2] ?? "", match[3] ?? ""];
}

function parseCIDR(text: string): Network | undefined {
  const slash = text.indexOf("/");
  return slash < 0 ? undefined : parseIP(text.slice(0, slash), text.slice(slash + 1));
}

function parseIP(text: string, bits?: string): Network | undefined {
  if (isIP(text) === 0) return undefined;
  try {
    return parseNetwork(text, bits, (why) => new Error(why));
  } catch {
    return undefined;
  }
}

/** The second is a single address. */
function contains({ network, prefix }: Network, { network: address }: Network): boolean {
  // To BlockList, ::/0 holds IPv4 addresses, too.
  if (network.family !== address.family) return false;
  const list = new BlockList();
  list.addSubnet(network, prefix);
  return list.check(address);
}

const LOOPBACK = [parseNetwork("127.0.0.0", "8", Error), parseNetwork("::1", undefined, Error)];

/** A name outside ASCII that is no legal one stays as it is, and so matches itself. */
function toASCII(name: string): string {
  return /^\p{ASCII}*$/u.test(name) ? name : domainToASCII(name) || name;
}
