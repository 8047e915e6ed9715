import { type ServerLocation, serverLocation } from "../server-url.ts";

/** The servers an agent keeps an uplink to; one, as long as replicas are found behind one name. */
export function wantedServers(options: Parameters<typeof serverLocation>[0]): readonly [ServerLocation] {
  return [serverLocation(options)];
}

/** `wss://host:port/path`, and what is dialled in its place, for a person. */
export function formatServer(server: ServerLocation): string {
  const { address } = server;
  const via = address === undefined ? "" : ` at ${bracketed(address.host)}:${address.port}`;
  return `wss://${bracketed(server.host)}:${server.port}${server.path}${via}`;
}

function bracketed(host: string): string {
  return host.includes(":") ? `[${host}]` : host;
}
