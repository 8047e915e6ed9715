import { isIP } from "node:net";
import { goBoolean } from "../basics/text.ts";
import { printable } from "../outcomes.ts";
import { dialledAddress, formatNetwork, parseCidr } from "./network.ts";
import { canonicalServerName } from "./server-name.ts";

/**
 * The identifiers in an agent's hello: addresses, names and networks that it serves, and whether it takes targets that
 * no other agent serves. A server chooses agents by them (`--proxy-strategies`).
 */
export interface AgentIdentifiers {
  readonly ipv4?: readonly string[] | undefined;
  readonly ipv6?: readonly string[] | undefined;
  readonly host?: readonly string[] | undefined;
  readonly cidr?: readonly string[] | undefined;
  readonly defaultRoute?: boolean | undefined;
}

/** Maximum number of identifiers of one agent. */
export const MAX_IDENTIFIERS = 64;
/** Maximum length of all identifiers as JSON, bytes: a hello has room for 8 KiB. */
const MAX_BYTES = 4_096;

const DEFAULT_ROUTE = "default-route";
const NAMES = ["ipv4", "ipv6", "host", "cidr"] as const;

/**
 * Parses values of `--agent-identifiers`, each of which has the form of a URL's query:
 * `host=a.example&cidr=10.0.0.0/8`. Throws an `Error` with a sentence. The result is canonical.
 */
export function parseIdentifiers(queries: readonly string[]): AgentIdentifiers {
  const lists = { ipv4: [] as string[], ipv6: [] as string[], host: [] as string[], cidr: [] as string[] };
  let defaultRoute = false;
  for (const query of queries) {
    const pairs = new URLSearchParams(query);
    for (const [key, value] of pairs) if (value.includes(",")) throw withComma(key, value);
    // Of several in one value Konnectivity reads the first.
    const route = pairs.get(DEFAULT_ROUTE);
    if (route !== null) defaultRoute ||= parseRoute(route);
    for (const [key, value] of pairs) {
      const name = NAMES.find((known) => known === key);
      if (name !== undefined) lists[name].push(value);
      else if (key !== DEFAULT_ROUTE) throw unknown(key);
    }
  }
  return canonicalIdentifiers({ ...lists, defaultRoute });
}

/**
 * The identifiers in the forms by which they are compared, each once, without empty lists. Throws an `Error` with a
 * sentence about what cannot be one.
 */
export function canonicalIdentifiers(given: AgentIdentifiers): AgentIdentifiers {
  const { ipv4 = [], ipv6 = [], host = [], cidr = [], defaultRoute = false } = given;
  const count = ipv4.length + ipv6.length + host.length + cidr.length;
  if (count > MAX_IDENTIFIERS)
    throw new Error(`these are ${count} identifiers, and at most ${MAX_IDENTIFIERS} are allowed`);
  const addresses = [...ipv4.map((text) => address("ipv4", text)), ...ipv6.map((text) => address("ipv6", text))];
  const hosts = [...addresses, ...host.map(hostOf)];
  const all = {
    ipv4: unique(hosts.filter((text) => isIP(text) === 4)),
    ipv6: unique(hosts.filter((text) => isIP(text) === 6)),
    host: unique(hosts.filter((text) => isIP(text) === 0)),
    cidr: unique(cidr.map(network)),
  };
  const filled = Object.entries(all).filter(([, list]) => list.length > 0);
  const identifiers: AgentIdentifiers = { ...Object.fromEntries(filled), ...(defaultRoute && { defaultRoute }) };
  const bytes = Buffer.byteLength(JSON.stringify(identifiers));
  if (bytes > MAX_BYTES) throw new Error(`these identifiers have ${bytes} bytes, and at most ${MAX_BYTES} are allowed`);
  return identifiers;
}

/** The addresses and names in one list. */
export function hostsOf({ ipv4 = [], ipv6 = [], host = [] }: AgentIdentifiers): readonly string[] {
  return [...ipv4, ...ipv6, ...host];
}

/** Whether there is none. */
export function isEmpty({ defaultRoute = false, cidr = [], ...hosts }: AgentIdentifiers): boolean {
  return !defaultRoute && cidr.length === 0 && hostsOf(hosts).length === 0;
}

/**
 * The host of a target in the form by which it is compared with identifiers: the address that is dialled, or a name.
 */
export function canonicalHost(host: string): string {
  return dialledAddress(host)?.address ?? host.toLowerCase().replace(/\.$/, "");
}

/** Konnectivity compares texts, and its installers write addresses of either family into any of the three. */
function address(name: "ipv4" | "ipv6", text: string): string {
  if (isIP(text) !== 0 && !text.includes("%")) return canonicalHost(text);
  throw new Error(`${name}="${printable(text, 60)}" is not an IP address (write a name as host=)`);
}

function hostOf(text: string): string {
  if (isIP(text) !== 0) return address("ipv4", text);
  const { name, fault } = canonicalServerName(text);
  if (fault !== undefined) throw new Error(`host="${printable(text, 60)}" ${fault}`);
  return name;
}

function network(text: string): string {
  return formatNetwork(parseCidr(printable(text, 60), "cidr"));
}

function parseRoute(text: string): boolean {
  const value = goBoolean(text);
  if (value !== undefined) return value;
  throw new Error(`${DEFAULT_ROUTE}="${printable(text, 60)}" is neither true nor false`);
}

/** No identifier has a comma: it is meant to begin the next one. */
function withComma(key: string, value: string): Error {
  const shown = printable(`${key}=${value}`, 60);
  return new Error(`"${shown}" has a comma, and & separates identifiers (ipv4=10.0.0.1&host=a.example)`);
}

function unknown(key: string): Error {
  const known = [...NAMES, DEFAULT_ROUTE].join(", ");
  return new Error(`"${printable(key, 60)}" is no identifier; known are ${known} (host=a.example&cidr=10.0.0.0/8)`);
}

function unique(texts: readonly string[]): readonly string[] {
  return [...new Set(texts)];
}
