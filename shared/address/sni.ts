import { isIP } from "node:net";

/** What TLS asks a host for: its name; an address has none to ask for (RFC 6066 §3). */
export function sniOf(host: string): { readonly servername?: string } {
  return isIP(host) === 0 ? { servername: host } : {};
}
