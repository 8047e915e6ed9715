import { isIPv4 } from "node:net";
import { canonicalAddress } from "../../address/network.ts";
import type { ProxiedConnection } from "../preface.ts";

/** Encodes the PROXY header of version 1, a line of text, as balancers send it; without a connection as UNKNOWN. */
export function encodeProxyV1(connection: ProxiedConnection | undefined): Buffer {
  if (connection === undefined) return Buffer.from("PROXY UNKNOWN\r\n");
  const addresses = [connection.source, connection.destination].map(({ address }) => canonicalAddress(address));
  const isV4 = addresses.every(isIPv4);
  const shown = isV4 ? addresses : addresses.map((address) => (isIPv4(address) ? `::ffff:${address}` : address));
  const ports = `${connection.source.port} ${connection.destination.port}`;
  return Buffer.from(`PROXY ${isV4 ? "TCP4" : "TCP6"} ${shown.join(" ")} ${ports}\r\n`);
}
