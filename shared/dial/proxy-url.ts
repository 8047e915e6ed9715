import { isIPv6 } from "node:net";
import { domainToASCII } from "node:url";
import { CONTROL_CHARACTER, type ProxyCredentials, type ProxyServer } from "./proxy-route.ts";

/** Where a URL names no port: as curl and Go have it. */
const DEFAULT_PORTS = { http: 80, https: 443, socks5: 1080, socks5h: 1080 } as const;

const EXAMPLE = "http://proxy.example.com:3128";

/**
 * `http://[user:password@]host[:port]`, also `https://`, `socks5://` and `socks5h://`; without a scheme it is `http`.
 * Throws an Error whose message continues the name of an option or a variable and never revealsSecret the text: it may hold
 * a password.
 */
export function parseProxyUrl(text: string): ProxyServer {
  const [, schemeText = "http", rest = ""] = /^(?:([^:/?#@]*):\/\/)?(.*)$/s.exec(text.trim()) ?? [];
  const scheme = schemeText.toLowerCase();
  if (!isScheme(scheme)) {
    throw new Error(`must begin with http://, https://, socks5:// or socks5h://, as in ${EXAMPLE}`);
  }
  const [, userInfo, place = "", tail = ""] = /^(?:([^/?#]*)@)?([^/?#]*)(.*)$/s.exec(rest) ?? [];
  if (tail !== "" && tail !== "/") {
    throw new Error(`must end after host and port; a /, ? or # of a password is written %2F, %3F or %23 (${EXAMPLE})`);
  }
  const match = /^(?:\[([^[\]]*)\]|([^:[\]]*))(?::(\d*))?$/.exec(place);
  if (match === null) throw new Error(`needs a host and a port, an IPv6 address in brackets, as in ${EXAMPLE}`);
  const [, bracketed, name = "", port = ""] = match;
  return {
    scheme,
    host: bracketed === undefined ? parseName(name) : parseIPv6(bracketed),
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
  // In a URL the % of a zone is written %25 (RFC 6874), and often is not.
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
