import { X509Certificate } from "node:crypto";
import { RecentMap } from "../basics/recent-map.ts";
import { certificates, isSelfSigned, mayHaveSigned, publicKeyOf, sha256 } from "./certificate-fields.ts";

/** What is asked of a CA certificate after it was loaded; the parsed certificate takes several KiB. */
export class BundledCa {
  /** Hash of its public key, which survives a renewal with the same key and every spelling of the PEM text. */
  readonly key: string;
  /** Distinguished names as OpenSSL compares them: without case and runs of spaces. */
  readonly subject: string;
  readonly issuer: string;
  /** No other CA has signed it. */
  readonly isSelfSigned: boolean;
  readonly notBefore: Date;
  readonly notAfter: Date;
  /** DER. */
  readonly #raw: Buffer;
  /** Whether the CA of a key has signed it. Verifying takes 100 µs, and a thousand bundles may hold one root. */
  #signers: Map<string, boolean> | undefined;

  constructor(certificate: X509Certificate) {
    this.#raw = certificate.raw;
    this.key = sha256(keyBytes(this.#raw));
    this.subject = folded(certificate.subject);
    this.issuer = folded(certificate.issuer);
    this.isSelfSigned = isSelfSigned(certificate);
    this.notBefore = new Date(certificate.validFrom);
    this.notAfter = new Date(certificate.validTo);
  }

  /** Whether one certificate may be verified by both. */
  overlaps(other: BundledCa): boolean {
    return this.key === other.key || this.#isSignedBy(other) || other.#isSignedBy(this);
  }

  #isSignedBy(other: BundledCa): boolean {
    if (this.issuer !== other.subject || this.isSelfSigned) return false;
    const known = this.#signers?.get(other.key);
    if (known !== undefined) return known;
    const signed = mayHaveSigned(other.#certificate(), this.#certificate());
    this.#signers ??= new Map();
    this.#signers.set(other.key, signed);
    return signed;
  }

  #certificate(): X509Certificate {
    return new X509Certificate(this.#raw);
  }
}

function keyBytes(raw: Buffer): Buffer {
  try {
    return publicKeyOf(raw);
  } catch {
    return raw; // OpenSSL accepts certificates that are not quite DER
  }
}

function folded(name: string): string {
  return name.toLowerCase().replace(/[^\S\n]+/g, " ");
}

/**
 * By the hash of their text, as many as clusters that one server is made for: each bundle is loaded, compared with the
 * others and asked for its end, and parsing a certificate takes 0.1 ms.
 */
const recent = new RecentMap<string, readonly BundledCa[]>(1_024);

/** The CAs of a bundle (PEM). Throws Node's error for one that is damaged. */
export function authoritiesOf(pem: string): readonly BundledCa[] {
  return recent.getOrMake(sha256(pem), () => certificates(pem).map((certificate) => new BundledCa(certificate)));
}
