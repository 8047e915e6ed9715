import type { LookupAddress } from "node:dns";
import { isIP, isIPv6 } from "node:net";
import { formatTarget, type Target } from "../../shared/address/target.ts";
import { RouteFault } from "../../shared/dial/proxy-route.ts";
import type { NAMES } from "../../shared/names/lookup.ts";
import { TUNNEL_PATH } from "../../shared/wire/handshake.ts";

/** The options that say which servers there are. */
export interface ServersOptions {
  readonly server: readonly string[];
  readonly serverAddress: string;
  readonly proxyServerHost: string;
  readonly proxyServerPort: number;
}

/** The servers an agent keeps an uplink to, in the order given: those of `--server`, or Konnectivity's one. */
export function wantedServers(options: ServersOptions): readonly ServerLocation[] {
  const { server, serverAddress, proxyServerHost: host, proxyServerPort: port } = options;
  const named: readonly ServerLocation[] =
    server.length === 0 ? [{ host, port, path: TUNNEL_PATH }] : server.map(parseServerUrl);
  if (serverAddress === "") return named;
  const address = parseHostPort(serverAddress);
  return named.map((one) => ({ ...one, address: { host: address.host, port: address.port ?? one.port } }));
}

/** The first that is named twice, in whatever spelling: a server holds one tunnel of an agent. */
export function repeatedServer(servers: readonly ServerLocation[]): string | undefined {
  const names = servers.map(formatServer);
  return names.find((name, index) => names.indexOf(name) < index);
}

/** `wss://host:port/path`, and what is dialled in its place: how logs, metrics and `/status` call a server. */
export function formatServer(server: ServerLocation): string {
  const { address, srv } = server;
  if (srv !== undefined) return `wss+srv://${srv}${server.path}`;
  const via = address === undefined ? "" : ` at ${formatTarget(address)}`;
  return `wss://${formatTarget(server)}${server.path}${via}`;
}

/** Where an agent finds its server: a name that is verified, and what is dialled for it. */
export interface ServerLocation {
  /** For SNI, verification and the Host header; no brackets. */
  readonly host: string;
  readonly port: number;
  readonly path: string;
  /** A name of SRV records (RFC 2782), which say hosts and ports to dial in place of host and port. */
  readonly srv?: string;
  /** `--server-address`: dialled in place of host and port. */
  readonly address?: Target;
}

/** The address that is dialled for a server, or asked of a proxy. */
export function dialTargetOf({ host, port, address = { host, port } }: ServerLocation): Target {
  return address;
}

/**
 * `wss://host[:port][/path]` or `wss+srv://_service._proto.name[/path]`; throws an Error whose message continues
 * "--server".
 */
export function parseServerUrl(text: string): ServerLocation {
  const example = "wss://culvert.example.com:443";
  const scheme = /^([A-Za-z][A-Za-z0-9+.-]*):\/\//.exec(text)?.[1]?.toLowerCase();
  if (scheme === undefined) throw new Error(`needs a URL such as ${example}`);
  if (scheme === "ws" || scheme === "http")
    throw new Error(`must be wss://: tunnels are always inside TLS (${example})`);
  if (scheme !== "wss" && scheme !== "wss+srv") throw new Error(`must begin with wss:// or wss+srv:// (${example})`);
  let url: URL;
  try {
    url = new URL(text);
  } catch {
    throw new Error(`is not a valid URL; expected one such as ${example}`);
  }
  // The text itself is not repeated: it may hold a password.
  if (url.username !== "" || url.password !== "")
    throw new Error("must not contain a user or password; agents show a certificate");
  if (url.port === "0") throw new Error("names port 0, which cannot be dialled: name a port from 1 to 65535");
  if (url.search !== "" || url.hash !== "") throw new Error("must not contain ? or #");
  const path = url.pathname === "/" || url.pathname === "" ? TUNNEL_PATH : url.pathname;
  if (scheme === "wss+srv") return parseSrv(url, path);
  return { host: url.hostname.replace(/^\[(.*)\]$/, "$1"), port: url.port === "" ? 443 : Number(url.port), path };
}

/** Of the labels that begin with an underscore the name is freed: it is the one that certificates are verified for. */
function parseSrv({ hostname, port }: URL, path: string): ServerLocation {
  const srv = hostname.toLowerCase();
  const host = /^(?:_[a-z\d-]+\.){2}((?:[a-z\d-]+\.)*[a-z\d-]+)$/.exec(srv)?.[1];
  if (host === undefined) throw new Error("needs a name of SRV records, such as wss+srv://_culvert._tcp.example.com");
  if (port !== "") throw new Error("must not name a port with wss+srv://, because SRV records do");
  return { host, port: 443, path, srv };
}

/** `HOST[:PORT]`, IPv6 in brackets when a port follows; throws an Error whose message continues "--server-address". */
export function parseHostPort(text: string): { readonly host: string; readonly port?: number } {
  const match = /^(?:\[([0-9A-Fa-f:.%\w]+)\]|([^:\s/@[\]]+))(?::(\d{1,5}))?$/.exec(text);
  const port = match?.[3] === undefined ? undefined : Number(match[3]);
  const host = match?.[1] ?? match?.[2] ?? (isIPv6(text) ? text : undefined);
  if (host === undefined || port === 0 || (port ?? 1) > 65_535) {
    throw new Error("needs HOST or HOST:PORT, an IPv6 address in brackets");
  }
  return { host, ...(port === undefined ? {} : { port }) };
}

/** The functions that ask DNS; tests have their own. */
export type NameResolver = Pick<typeof NAMES, "find" | "ttl" | "srv">;

/** An address that DNS has for a server, or a host of an SRV record. */
export interface FoundAddress extends Target {
  /** Of an SRV record: those of a lower number come first. */
  readonly priority?: number;
  /** Of an SRV record: its share of the agents, among those of the same priority. */
  readonly weight?: number;
}

/** The addresses that DNS has for a server. */
export interface FoundAddresses {
  /** At most `MAX_ADDRESSES`. One alone is no choice: the name is dialled then, unless it is one of SRV records. */
  readonly addresses: readonly FoundAddress[];
  /** Ask again after this time, ms. */
  readonly askAgainMs: number;
}

/** A name may have any number of addresses, and an agent keeps tunnels to a few. */
const MAX_ADDRESSES = 64;
/** The time to keep an answer that does not say it: one of the hosts file, or of SRV records. */
const UNKNOWN_TTL_S = 15;
export const MIN_TTL_S = 5;
export const MAX_TTL_S = 300;

/** Whether the name of a server may have several addresses. */
export function mayHaveSeveral(location: ServerLocation): boolean {
  return location.srv !== undefined || isIP(dialTargetOf(location).host) === 0;
}

/** Asks for the addresses of a server. Rejects with the error of the resolver. */
export async function findAddresses(location: ServerLocation, resolver: NameResolver): Promise<FoundAddresses> {
  if (location.srv !== undefined) return findBySrv(location.srv, resolver);
  const { host, port } = dialTargetOf(location);
  const found = oneFamily(await resolver.find(host));
  const family = found[0]?.family ?? 4;
  const addresses = found.map(({ address }) => ({ host: address, port }));
  return { addresses: bounded(addresses), askAgainMs: await askAgainMs(host, family, resolver) };
}

/**
 * A server with an address of each family is one server: those of one family are counted, of the one that has more. Of
 * two with as many it is the first one's, which the operating system prefers (RFC 6724).
 */
function oneFamily(found: readonly LookupAddress[]): readonly LookupAddress[] {
  const v4 = found.filter(({ family }) => family === 4);
  const v6 = found.filter(({ family }) => family === 6);
  if (v4.length === v6.length) return found[0]?.family === 6 ? v6 : v4;
  return v4.length > v6.length ? v4 : v6;
}

/** The hosts, those of the lowest priority number first. A record without a host says that there is no server. */
async function findBySrv(name: string, resolver: NameResolver): Promise<FoundAddresses> {
  const records = (await resolver.srv(name)).filter((record) => !/^\.?$/.test(record.name));
  const [first] = records.sort((one, other) => one.priority - other.priority);
  if (first === undefined) throw new Error("no record names a host");
  const addresses = records.map(({ name: host, port, priority, weight }) => ({ host, port, priority, weight }));
  return { addresses: bounded(addresses), askAgainMs: await askAgainMs(first.name, 4, resolver) };
}

/** Of two with one address the first counts. */
function bounded(addresses: readonly FoundAddress[]): readonly FoundAddress[] {
  const keys = addresses.map(addressKey);
  return addresses.filter((_, index) => keys.indexOf(keys[index] ?? "") === index).slice(0, MAX_ADDRESSES);
}

async function askAgainMs(name: string, family: number, resolver: NameResolver): Promise<number> {
  const seconds = await resolver.ttl(name, family).catch(() => UNKNOWN_TTL_S);
  return Math.min(Math.max(seconds, MIN_TTL_S), MAX_TTL_S) * 1_000;
}

/** The fault of an attempt that has no SRV records to dial. */
export function noRecords(srv: string, cause: unknown): RouteFault {
  const why = cause instanceof Error ? cause.message : "there are none";
  const sentence = `the SRV records "${srv}" do not resolve (${why}): check the name in --server, and this machine's DNS`;
  return new RouteFault("dns", sentence, { at: srv, cause });
}

/** As `remote` of a link writes it. */
export function addressKey({ host, port }: Target): string {
  return `${host}:${port}`;
}
