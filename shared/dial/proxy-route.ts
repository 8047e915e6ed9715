import { isIP, isIPv6 } from "node:net";
import { domainToASCII } from "node:url";
import { contains, isLoopback, type Network, parseCidr } from "../address/network.ts";
import { bracketed, type Target } from "../address/target.ts";
import { DialFault } from "../faults/faults.ts";
import type { ProxyCredentials } from "./auth/scheme.ts";

/** Control characters are not allowed in a user or a password (RFC 7617 §2). */
export const CONTROL_CHARACTER = /\p{Cc}/u;

/** A proxy that opens TCP connections, by CONNECT (RFC 9110 §9.3.6) or SOCKS 5 (RFC 1928). */
export interface ProxyServer {
  /** `https`: TLS to the proxy itself. `socks5h`: the proxy resolves the target's name; `socks5`: this process does. */
  readonly scheme: "http" | "https" | "socks5" | "socks5h";
  /** Without brackets. */
  readonly host: string;
  readonly port: number;
  /** Credentials in the proxy's URL. */
  readonly credentials: ProxyCredentials | undefined;
}

/** How a connection to a target leaves this network: directly, or through a proxy. */
export type ProxyRoute =
  | { readonly kind: "direct" }
  | {
      readonly kind: "proxy";
      readonly proxy: ProxyServer;
      /** The setting that names the proxy, for the log: `--proxy`, `HTTPS_PROXY`, a PAC script. */
      readonly from: string;
      /**
       * A PAC script that was fetched without TLS names this proxy. Anybody on the path to the script's server may have
       * chosen it, so the proxy gets no password and no ticket (decision 0023).
       */
      readonly isUnverified: boolean;
    };

/** `http://proxy.corp:3128`, without credentials, for logs, metrics and the doctor. */
export function formatProxy({ scheme, host, port }: ProxyServer): string {
  return `${scheme}://${bracketed(host)}:${port}`;
}

/** `direct`, or the proxy and what names it, for logs. */
export function formatRoute(route: ProxyRoute): string {
  return route.kind === "direct" ? "direct" : `${formatProxy(route.proxy)} (${route.from})`;
}

/** The port of a URL without a port, as in curl and Go. */
const DEFAULT_PORTS = { http: 80, https: 443, socks5: 1080, socks5h: 1080 } as const;

const EXAMPLE = "http://proxy.example.com:3128";

/**
 * Parses `http://[user:password@]host[:port]`, also with `https`, `socks5` and `socks5h`; the default scheme is `http`.
 * Throws an Error whose message continues the name of an option or a variable. The message never contains the text,
 * which may hold a password.
 */
export function parseProxyUrl(text: string): ProxyServer {
  const [, schemeText = "http", rest = ""] = /^(?:([^:/?#@]*):\/\/)?(.*)$/s.exec(text.trim()) ?? [];
  const scheme = schemeText.toLowerCase();
  if (!isScheme(scheme)) {
    throw new Error(`must begin with http://, https://, socks5:// or socks5h://, as in ${EXAMPLE}`);
  }
  const [, userInfo, authority = "", tail = ""] = /^(?:([^/?#]*)@)?([^/?#]*)(.*)$/s.exec(rest) ?? [];
  if (tail !== "" && tail !== "/") {
    throw new Error(`must end after host and port; a /, ? or # of a password is written %2F, %3F or %23 (${EXAMPLE})`);
  }
  const match = /^(?:\[([^[\]]*)\]|([^:[\]]*))(?::(\d*))?$/.exec(authority);
  if (match === null) throw new Error(`needs a host and a port, an IPv6 address in brackets, as in ${EXAMPLE}`);
  const [, ipv6, name = "", port = ""] = match;
  return {
    scheme,
    host: ipv6 === undefined ? parseName(name) : parseIPv6(ipv6),
    port: port === "" ? DEFAULT_PORTS[scheme] : parsePort(port),
    credentials: parseUserInfo(userInfo),
  };
}

function isScheme(text: string): text is ProxyServer["scheme"] {
  return Object.hasOwn(DEFAULT_PORTS, text);
}

function parseName(text: string): string {
  const name = domainToASCII(text);
  if (text === "" || name === "") throw new Error(`needs a legal host name or an IP address, as in ${EXAMPLE}`);
  return name;
}

function parseIPv6(text: string): string {
  if (!isIPv6(text)) throw new Error("has something else than an IPv6 address in brackets");
  // In a URL the % of a zone is written %25 (RFC 6874), but many people write %.
  return text.toLowerCase().replace("%25", "%");
}

function parsePort(text: string): number {
  const port = Number(text);
  if (port === 0 || port > 65_535) throw new Error("needs a port from 1 to 65535");
  return port;
}

function parseUserInfo(text: string | undefined): ProxyCredentials | undefined {
  if (text === undefined || text === "") return undefined;
  const colon = text.indexOf(":");
  return colon < 0
    ? { user: decode(text), password: "" }
    : { user: decode(text.slice(0, colon)), password: decode(text.slice(colon + 1)) };
}

function decode(text: string): string {
  if (/%(?![\da-f]{2})/i.test(text)) {
    throw new Error("has a % in its user or password that begins no percent-encoded byte: write it %25");
  }
  const decoded = decodeUtf8(text);
  if (CONTROL_CHARACTER.test(decoded)) throw new Error("has a control character in its user or password: leave it out");
  return decoded;
}

function decodeUtf8(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    throw new Error("has percent-encoded bytes in its user or password that are not UTF-8: write ö as %C3%B6");
  }
}

/** All faults of a proxy route, the most informative first: a proxy that answered knows more than a silent network. */
const BY_INFORMATION = [
  // The PAC script cannot be read, or gives no answer.
  "pac",
  // The proxy answered.
  "proxy_auth_refused",
  "proxy_auth_unsupported",
  "proxy_auth_required",
  // The proxy asks for credentials and gets none, because its route is unverified.
  "proxy_auth_withheld",
  "proxy_tls",
  // A captive portal. A web page in answer to the WebSocket upgrade has the same label.
  "web_page",
  "proxy_forbidden",
  "proxy_protocol",
  "proxy_unavailable",
  "proxy_closed",
  // The network, on the way to the server or to a proxy.
  "refused",
  "closed",
  "unreachable",
  "dns",
  "timeout",
] as const;

/** The fault of a proxy route: a label for metrics and the doctor. The message is for people. */
export type RouteFaultCode = (typeof BY_INFORMATION)[number];

/** A proxy route gave no connection to its target. */
export class RouteFault extends DialFault {
  declare readonly fault: RouteFaultCode;

  /** The party at fault: the target (`formatTarget`), a proxy (`formatProxy`), or a file. */
  get at(): string {
    return this.facts.by;
  }

  /** `message` is a sentence that names the culprit and a cure, without secrets. */
  constructor(
    fault: RouteFaultCode,
    message: string,
    { at, ...options }: ErrorOptions & { readonly at: string; readonly retryAfterMs?: number | undefined },
  ) {
    super(fault, message, { facts: { by: at }, ...options });
  }
}

/** A file of the agent for its proxies cannot be used. The network is not at fault. */
export class ProxyFileFault extends RouteFault {}

/** The attempt timed out while Kerberos asked its KDC for a ticket. The proxy had answered. */
export class KdcTimeout extends RouteFault {}

/** One fault for all routes that were tried: the most informative one, with the messages of all. */
export function combineFaults(faults: readonly RouteFault[]): RouteFault {
  const rank = ({ fault }: RouteFault): number => BY_INFORMATION.indexOf(fault);
  const [first, ...others] = faults.toSorted((one, other) => rank(one) - rank(other));
  if (first === undefined) throw new Error("no proxy route was tried");
  if (others.length === 0) return first;
  const { fault, at, retryAfterMs } = first;
  return new RouteFault(fault, faults.map(({ message }) => message).join("; "), { at, retryAfterMs, cause: first });
}

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
  const withoutZone = name.replace(/%.*$/, "");
  if (isLoopback(withoutZone)) return true;
  const address = networkIn(withoutZone);
  return noProxy.split(",").some((entry) => matchesEntry(entry.trim().toLowerCase(), name, port, address));
}

function matchesEntry(entry: string, name: string, port: number, address: Network | undefined): boolean {
  if (entry === "") return false;
  if (entry === "*") return true;
  const network = networkIn(entry);
  if (network !== undefined) return address !== undefined && contains(network, address);

  const [host, portText] = splitHostPort(entry);
  if (host === "" || (portText !== "" && portText !== String(port))) return false;
  const single = isIP(host) === 0 ? undefined : networkIn(host); // a CIDR has no port
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

/** An address or a CIDR; anything else gives `undefined`. */
function networkIn(text: string): Network | undefined {
  try {
    return parseCidr(text);
  } catch {
    return undefined;
  }
}

/** A name outside ASCII that is not a legal name stays as it is, and so matches itself. */
function toASCII(name: string): string {
  return /^\p{ASCII}*$/u.test(name) ? name : domainToASCII(name) || name;
}
