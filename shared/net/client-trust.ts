import { X509Certificate } from "node:crypto";
import { certificates } from "./tls-material.ts";

/** What is left of a certificate's standing after a change of trust: `stands`, or why not. */
export type Standing = "stands" | "untrusted";

/** A path with more certificates than this is none: OpenSSL's own bound is 100, and real ones have three. */
const MAX_PATH = 10;

/**
 * The CAs by which clients are judged now, for clients that a handshake has judged before. It finds a path from the
 * certificates of that handshake to one of the CAs, by names, key identifiers, signatures and the right to sign. What a CA
 * says beyond that about the names under it (RFC 5280 §4.2.1.10) counts with the next handshake. Dates do not count: time
 * alone ends no connection (decision 0022).
 */
export class ClientTrust {
  readonly ca: string;
  readonly #anchors: readonly X509Certificate[];

  /** `ca`: PEM; empty: there is none that would count. */
  constructor(ca: string) {
    this.ca = ca;
    this.#anchors = certificates(ca);
  }

  /** `chain`: the client's certificate, then those between it and its CA (DER). */
  standing(chain: readonly Buffer[]): Standing {
    const [leaf, ...between] = chain.map((der) => new X509Certificate(der));
    if (leaf === undefined) return "untrusted";
    return this.#leadsToAnchor(leaf, between, 0) ? "stands" : "untrusted";
  }

  #leadsToAnchor(certificate: X509Certificate, between: readonly X509Certificate[], depth: number): boolean {
    if (depth >= MAX_PATH) return false;
    // OpenSSL ends a path at a CA that has signed itself; one in the middle is trusted through its own.
    if (certificate.checkIssued(certificate)) return this.#anchors.some(({ raw }) => raw.equals(certificate.raw));
    return [...this.#anchors, ...between].some(
      (issuer) => hasSigned(issuer, certificate) && this.#leadsToAnchor(issuer, between, depth + 1),
    );
  }
}

function hasSigned(issuer: X509Certificate, certificate: X509Certificate): boolean {
  return issuer.ca && certificate.checkIssued(issuer) && certificate.verify(issuer.publicKey);
}
