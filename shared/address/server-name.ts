import { isIP } from "node:net";
import { domainToASCII } from "node:url";
import { printable } from "../outcomes.ts";

/** A host name in its canonical spelling, or what is wrong with it, as the end of a sentence. */
export type ServerName =
  | { readonly name: string; readonly fault?: undefined }
  | { readonly name?: undefined; readonly fault: string };

const NO_HOST_NAME = "is no host name: letters, digits, - and _ between dots";
const MAX_NAME = 253;
const MAX_LABEL = 63;
/** Maximum length of a name outside ASCII: no longer one fits into 253 bytes as A-labels. */
const MAX_RAW = 1_024;
/** Underscores are not allowed in host names (RFC 952), but they occur in DNS, and resolvers accept them. */
export const HOST_LABEL = /^[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?$/i;
/**
 * The last label of "127.1" and "0x7f000001", which are addresses to a resolver and names to a reader (WHATWG URL:
 * "ends in a number").
 */
export const NUMBER_LABEL = /^(?:[0-9]+|0x[0-9a-f]*)$/i;

/**
 * The canonical spelling of a host name in TLS `server_name` (RFC 6066 §3): lower case, no final dot, labels as
 * A-labels (RFC 5890). Names in configuration are converted by the same function, so that both can be compared as
 * strings.
 */
export function canonicalServerName(text: string): ServerName {
  if (text === "" || text === ".") return { fault: "is empty" };
  if (text.includes("\0")) return { fault: "holds a NUL byte" };
  // biome-ignore lint/suspicious/noControlCharactersInRegex: finding them is the point.
  if (/[\x01-\x1f\x7f]/.test(text)) return { fault: "holds a control byte" };
  if (text.length > MAX_RAW) return overlong(text.length);
  const isAscii = /^[\x20-\x7e]*$/.test(text);
  // `domainToASCII` parses the host of a URL and ends it at these characters.
  if (!isAscii && /[/?#\\%@:]/.test(text)) return { fault: NO_HOST_NAME };
  const ascii = isAscii ? text.toLowerCase() : domainToASCII(text);
  if (ascii === "") return { fault: "is no host name: it has no form in ASCII (IDNA)" };
  const name = ascii.endsWith(".") ? ascii.slice(0, -1) : ascii;
  if (isIP(name.replace(/^\[(.*)\]$/, "$1")) !== 0) return { fault: "is an IP address, and host names are compared" };
  if (name.length > MAX_NAME) return overlong(name.length);
  const labels = name.split(".");
  const long = labels.find((label) => label.length > MAX_LABEL);
  if (long !== undefined) return { fault: `has a label of ${long.length} bytes, and at most ${MAX_LABEL} are allowed` };
  if (!labels.every((label) => HOST_LABEL.test(label))) return { fault: NO_HOST_NAME };
  if (NUMBER_LABEL.test(labels.at(-1) ?? ""))
    return { fault: "is an IP address in disguise: its last label is a number" };
  return { name };
}

function overlong(length: number): ServerName {
  return { fault: `is ${length} bytes long, and at most ${MAX_NAME} are allowed` };
}

/**
 * A name of a configuration in the spelling by which it is compared, or `*.` and a name. Throws a sentence for its
 * author.
 */
export function parseServerNamePattern(text: string): string {
  const isWildcard = text.startsWith("*.");
  const host = isWildcard ? text.slice(2) : text;
  const shown = `"${printable(text, 80)}"`;
  if (host.includes("*")) {
    throw new Error(`${shown}: a star stands alone for the first label (write for example "*.clusters.example")`);
  }
  const { name, fault } = canonicalServerName(host);
  if (fault !== undefined) throw new Error(`${shown} ${fault} (write for example "blue.clusters.example")`);
  return isWildcard ? `*.${name}` : name;
}

/** The `server_name` option for a TLS connection to this host. An IP address has none (RFC 6066 §3). */
export function sniOf(host: string): { readonly servername?: string } {
  return isIP(host) === 0 ? { servername: host } : {};
}
