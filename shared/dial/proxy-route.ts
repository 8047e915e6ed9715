import { isIPv6 } from "node:net";
import { domainToASCII } from "node:url";
import { bracketed } from "../address/target.ts";
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
      /** What names the proxy, for the log: `--proxy`, `HTTPS_PROXY`, a PAC script. */
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
