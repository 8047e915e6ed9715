import { X509Certificate } from "node:crypto";
import tls from "node:tls";
import { wellKnownAuthorities } from "./well-known-authorities.ts";

/** What newer Node versions can list (22.15). */
const { getCACertificates } = tls as { getCACertificates?: (type: "system") => readonly string[] };

/**
 * Has this certificate been signed by a CA that somebody has installed on this machine, as companies do with that of their
 * TLS inspection? The CAs that Node brings are none of those.
 */
export function isInstalled(certificate: X509Certificate): boolean {
  return signs(installed(), certificate);
}

/** Has one of these CAs signed this certificate? A name alone is no proof. */
export function signs(authorities: readonly X509Certificate[], certificate: X509Certificate): boolean {
  return authorities.some((ca) => ca.subject === certificate.issuer && verifies(ca, certificate));
}

function verifies({ publicKey }: X509Certificate, certificate: X509Certificate): boolean {
  try {
    return certificate.verify(publicKey);
  } catch {
    return false; // a key of another kind
  }
}

let known: readonly X509Certificate[] | undefined;

/** Read once, and not before a certificate is met that is of none of our CAs: there are hundreds. */
function installed(): readonly X509Certificate[] {
  known ??= without(tls.rootCertificates, [...wellKnownAuthorities(), ...(getCACertificates?.("system") ?? [])]);
  return known;
}

function without(brought: readonly string[], pems: readonly string[]): X509Certificate[] {
  const theirs = new Set(brought.map((pem) => new X509Certificate(pem).fingerprint256));
  return pems.map((pem) => new X509Certificate(pem)).filter(({ fingerprint256 }) => !theirs.has(fingerprint256));
}
