import { createHash, X509Certificate } from "node:crypto";
import { RecentMap } from "../../shared/basics/recent-map.ts";
import { publicKeyOf } from "../../shared/tls/certificate-fields.ts";
import { isSelfSigned, mayHaveSigned } from "../../shared/tls/client-trust.ts";
import { certificates } from "../../shared/tls/tls-material.ts";

/** A CA certificate of a bundle. Its key is what makes it the CA that it is, whatever else the certificate says. */
export class Authority {
  /** Hash of its public key: the same after a renewal with the same key, in every spelling of the PEM text. */
  readonly key: string;
  /** Distinguished names as OpenSSL compares them: without case and runs of spaces. */
  readonly subject: string;
  readonly issuer: string;
  /** No other CA has signed it. */
  readonly isSelfSigned: boolean;
  /** DER; the parsed certificate would take several KiB for each of thousands of CAs. */
  readonly #raw: Buffer;
  /** By the key of the other: verifying takes 100 µs, and one root may stand in the bundles of a thousand clusters. */
  readonly #signers = new Map<string, boolean>();

  constructor(certificate: X509Certificate) {
    this.#raw = certificate.raw;
    this.key = createHash("sha256").update(keyBytes(this.#raw)).digest("base64url");
    this.subject = folded(certificate.subject);
    this.issuer = folded(certificate.issuer);
    this.isSelfSigned = isSelfSigned(certificate);
  }

  /** May one certificate come from both? */
  overlaps(other: Authority): boolean {
    return this.key === other.key || this.#isSignedBy(other) || other.#isSignedBy(this);
  }

  #isSignedBy(other: Authority): boolean {
    if (this.issuer !== other.subject || this.isSelfSigned) return false;
    const known = this.#signers.get(other.key);
    if (known !== undefined) return known;
    const signed = mayHaveSigned(other.#certificate(), this.#certificate());
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
    return raw; // OpenSSL takes what is not quite DER
  }
}

function folded(name: string): string {
  return name.toLowerCase().replace(/[^\S\n]+/g, " ");
}

/** Many clusters use the CA of the flags, and one bundle often serves both sides of a cluster. */
const recent = new RecentMap<string, readonly Authority[]>(64);

/** The CAs of a bundle (PEM). */
export function authoritiesOf(pem: string): readonly Authority[] {
  return recent.getOrMake(pem, () => certificates(pem).map((certificate) => new Authority(certificate)));
}
