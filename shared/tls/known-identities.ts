import { bytesIn } from "../basics/bytes.ts";
import { RecentMap } from "../basics/recent-map.ts";
import { sha256 } from "./certificate-fields.ts";
import type { PeerIdentity } from "./identity.ts";

/** Identities that are remembered: as many as clusters that one server is made for. */
const MOST_KNOWN = 1_024;
/**
 * Larger ones are read each time, so that what is remembered stays below 12 MiB whatever tenants put into certificates.
 */
const LARGEST_KNOWN = { chainBytes: 8 * 1024, names: 16 };
/**
 * One caller presents the same certificate at each CONNECT, and reading it takes 200 µs and more, because Node copies
 * the chain; so the last ones are kept by the hash of their bytes (DER). Only the content of the certificate is kept,
 * never whether it was accepted.
 */
const recent = new RecentMap<string, { readonly ca: string | undefined; readonly identity: PeerIdentity }>(MOST_KNOWN);

/**
 * The identity in this certificate (DER), if it came before under this CA: by another it may have come with another
 * chain.
 */
export function knownIdentity(shown: Buffer | undefined, ca: string | undefined): PeerIdentity | undefined {
  const known = shown && recent.get(sha256(shown));
  return known?.ca === ca ? known?.identity : undefined;
}

/** Remembers the identity that this certificate (DER) has under this CA. */
export function remember(certificate: Buffer, ca: string | undefined, identity: PeerIdentity): void {
  const { o, dns, uri, chain } = identity;
  if (bytesIn(chain) > LARGEST_KNOWN.chainBytes) return;
  if (o.length + dns.length + uri.length > LARGEST_KNOWN.names) return;
  recent.set(sha256(certificate), { ca, identity });
}
