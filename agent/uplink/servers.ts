import { isIPv6 } from "node:net";
import { bracketed, type Target } from "../../shared/address/target.ts";
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
  const via = address === undefined ? "" : ` at ${bracketed(address.host)}:${address.port}`;
  return `wss://${bracketed(server.host)}:${server.port}${server.path}${via}`;
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

/** What is dialled for a server, or asked of a proxy. */
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
