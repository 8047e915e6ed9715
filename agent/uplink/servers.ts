import { bracketed } from "../../shared/address/target.ts";
import { TUNNEL_PATH } from "../../shared/wire/handshake.ts";
import { parseHostPort, parseServerUrl, type ServerLocation } from "./server-url.ts";

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
  const named = server.length === 0 ? [{ host, port, path: TUNNEL_PATH }] : server.map(parseServerUrl);
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
  const { address } = server;
  const via = address === undefined ? "" : ` at ${bracketed(address.host)}:${address.port}`;
  return `wss://${bracketed(server.host)}:${server.port}${server.path}${via}`;
}
