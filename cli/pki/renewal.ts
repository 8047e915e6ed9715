import { createPrivateKey, X509Certificate } from "node:crypto";
import { isIP, SocketAddress } from "node:net";
import type { CertificateAndKey } from "../../shared/pki/certificates.ts";
import { parseAltNames } from "../../shared/tls/certificate-fields.ts";

/** A certificate is renewed when less than this part of its lifetime is left, as by cert-manager. */
const MIN_LIFE_LEFT = 1 / 3;

interface WantedCertificate {
  /** Certificate of the CA that must have signed it, PEM. */
  readonly ca: string;
  /** All DNS names and IP addresses in its subjectAltName. */
  readonly names: readonly string[];
}

/**
 * Why this certificate must be replaced, as the end of a sentence that begins with "because"; `undefined`: it is fine.
 */
export function reasonToRenew(
  { cert, key }: CertificateAndKey,
  { ca, names }: WantedCertificate,
  now: Date,
): string | undefined {
  let certificate: X509Certificate;
  let present: readonly string[];
  try {
    certificate = new X509Certificate(cert);
    present = parseAltNames(certificate.subjectAltName ?? "").map(({ value }) => value);
    if (!certificate.checkPrivateKey(createPrivateKey(key))) return "its key belongs to another certificate";
  } catch {
    return "its certificate or key cannot be read";
  }
  if (!certificate.verify(new X509Certificate(ca).publicKey)) return "another CA has signed it";
  if (!sameNames(present, names)) return "the names have changed";
  return isNearItsEnd(certificate, now) ? "less than a third of its life was left" : undefined;
}

/** Whether less than a third of its lifetime is left. */
export function isNearItsEnd({ validFrom, validTo }: X509Certificate, now: Date): boolean {
  const [begin, end] = [Date.parse(validFrom), Date.parse(validTo)];
  return end - now.getTime() < (end - begin) * MIN_LIFE_LEFT;
}

function sameNames(present: readonly string[], wanted: readonly string[]): boolean {
  const [a, b] = [new Set(present.map(canonical)), new Set(wanted.map(canonical))];
  return a.size === b.size && [...a].every((name) => b.has(name));
}

/** One spelling for each name: Node writes IPv6 addresses of a certificate in full. */
function canonical(name: string): string {
  return isIP(name) === 6 ? new SocketAddress({ address: name, family: "ipv6" }).address : name.toLowerCase();
}
