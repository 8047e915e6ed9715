import { BlockList, isIP } from "node:net";
import { domainToASCII } from "node:url";
import { LOOPBACK, type Network, parseNetwork } from "../address/network.ts";
import type { Target } from "../address/target.ts";
import { type ProxyRoute, parseProxyUrl } from "./proxy-route.ts";

export type Environment = Readonly<Record<string, string | undefined>>;

/** Connections to servers use TLS, so HTTP_PROXY does not apply. ALL_PROXY is curl's fallback. */
const VARIABLES = ["HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"] as const;

/**
 * The proxy that the environment names, whatever the target; `undefined` if there is none. An empty variable counts as
 * unset, as in Go. Throws an Error that names an invalid variable without its value; Go would connect directly.
 */
export function environmentProxy(env: Environment): ProxyRoute | undefined {
  const from = VARIABLES.find((name) => env[name]);
  if (from === undefined) return undefined;
  try {
    return { kind: "proxy", proxy: parseProxyUrl(env[from] ?? ""), from, isUnverified: false };
  } catch (error) {
    throw new Error(`${from} ${(error as Error).message}`);
  }
}

/** The route that the environment names for a target: `direct` where NO_PROXY excepts it from the proxy. */
export function environmentRoute(env: Environment, target: Target): ProxyRoute | undefined {
  const proxy = environmentProxy(env);
  if (proxy === undefined) return undefined;
  return bypassesProxy(env["NO_PROXY"] || env["no_proxy"] || "", target) ? { kind: "direct" } : proxy;
}

/**
 * Does NO_PROXY except this target from the proxy? The rules are those of Go's golang.org/x/net/http/httpproxy: entries
 * are separated by commas, and each is an IP address, a CIDR, a name (also matches its subdomains), `.name` or `*.name`
 * (subdomains only), or `*`; all but CIDRs may have a port. Other entries match nothing. Loopback is always excepted.
 */
export function bypassesProxy(noProxy: string, { host, port }: Target): boolean {
  const name = toASCII(host.toLowerCase().trim());
  const address = parseIP(name.replace(/%.*$/, ""));
  if (name === "localhost" || (address !== undefined && LOOPBACK_NETWORKS.some((each) => contains(each, address)))) {
    return true;
  }
  return noProxy.split(",").some((entry) => matchesEntry(entry.trim().toLowerCase(), name, port, address));
}

function matchesEntry(entry: string, name: string, port: number, address: Network | undefined): boolean {
  if (entry === "") return false;
  if (entry === "*") return true;
  const network = parseCIDR(entry);
  if (network !== undefined) return address !== undefined && contains(network, address);

  const [host, portText] = splitHostPort(entry);
  if (host === "" || (portText !== "" && portText !== String(port))) return false;
  const single = parseIP(host);
  if (single !== undefined) return address !== undefined && contains(single, address);
  return address === undefined && matchesName(name, host);
}

function matchesName(name: string, pattern: string): boolean {
  const suffix = toASCII(pattern.startsWith("*.") ? pattern.slice(1) : pattern);
  return suffix.startsWith(".") ? name.endsWith(suffix) : name === suffix || name.endsWith(`.${suffix}`);
}

/** Go's net.SplitHostPort. An entry that it rejects (no port, IPv6 without brackets) is a host as a whole. */
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

/** The second network is a single address. */
function contains({ network, prefix }: Network, { network: address }: Network): boolean {
  // For BlockList, ::/0 also contains IPv4 addresses.
  if (network.family !== address.family) return false;
  const list = new BlockList();
  list.addSubnet(network, prefix);
  return list.check(address);
}

const LOOPBACK_NETWORKS = LOOPBACK.map((text) => parseCIDR(text)).filter((network) => network !== undefined);

/** A name outside ASCII that is not a legal name stays as it is, and so matches itself. */
function toASCII(name: string): string {
  return /^\p{ASCII}*$/u.test(name) ? name : domainToASCII(name) || name;
}
