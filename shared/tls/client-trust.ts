import { X509Certificate } from "node:crypto";
import { getOrMake, RecentMap } from "../basics/collections.ts";
import { certificates, isSelfSigned, mayBeRoot, mayBeTrusted, mayHaveSigned } from "./certificate-fields.ts";
import type { RevocationList } from "./revocation-list.ts";

/** The status of a certificate under a set of CAs and their CRLs, the best first; `crl_expired`: nobody can tell. */
const STATUSES = ["valid", "crl_expired", "revoked", "untrusted"] as const;
type CertificateStatus = (typeof STATUSES)[number];

/** Maximum length of a path: real ones have three certificates. */
const MAX_PATH = 10;
/** Maximum number of certificates that are examined for one client: CAs that sign each other make endless paths. */
const MAX_STEPS = 64;
/** Maximum number of CAs whose CRLs are remembered: clients bring the intermediate ones. */
const MAX_KEPT = 64;

/**
 * The present CAs and CRLs of a port, for clients whose certificates a handshake has verified before. It finds a path
 * from these certificates to one of the CAs, by names, key identifiers, signatures and the right to sign, on which no
 * certificate is revoked. A CA's name constraints (RFC 5280 §4.2.1.10) take effect at the next handshake. The dates of
 * certificates do not count: time alone ends no open connection (decision 0022).
 */
export class ClientTrust {
  readonly ca: string;
  readonly lists: readonly RevocationList[];
  #parsedCa: readonly X509Certificate[] | undefined;
  /** CRLs by the fingerprint of their CA: finding them takes a signature over every byte of each. */
  readonly #listsOf = new RecentMap<string, readonly RevocationList[]>(MAX_KEPT);

  /** `ca`: PEM; empty: no CA is trusted. */
  constructor(ca: string, lists: readonly RevocationList[] = []) {
    this.ca = ca;
    this.lists = lists;
  }

  /** Parsed when first needed: most clusters never have a CRL, and their open connections are never verified again. */
  get #anchors(): readonly X509Certificate[] {
    this.#parsedCa ??= certificates(this.ca).filter(mayBeTrusted);
    return this.#parsedCa;
  }

  /** Whether one of the CAs has issued this CRL. */
  knows(list: RevocationList): boolean {
    return this.#anchors.some((anchor) => this.#lists(anchor).includes(list));
  }

  /** By name and key: a CA that was renewed, or is signed by another one as well, revokes the same certificates. */
  #lists(issuer: X509Certificate): readonly RevocationList[] {
    if (this.lists.length === 0) return [];
    return getOrMake(this.#listsOf, issuer.fingerprint256, () => this.lists.filter((list) => list.isOf(issuer)));
  }

  /** `chain`: the client's certificate, then the intermediate ones (DER). Without a time no CRL has expired. */
  status(chain: readonly Buffer[], now?: Date): CertificateStatus {
    const [leaf, ...between] = chain.map((der) => new X509Certificate(der));
    return leaf === undefined ? "untrusted" : this.#statusOf(leaf, { between, now, stepsLeft: MAX_STEPS }, 0);
  }

  /** Why the CRLs refuse a certificate that a handshake has verified; the text continues "the client certificate". */
  crlFault(chain: readonly Buffer[]): string | undefined {
    if (this.lists.length === 0) return undefined;
    switch (this.status(chain, new Date())) {
      case "valid":
        return undefined;
      case "revoked":
        return "is revoked";
      case "crl_expired":
        return "cannot be accepted, because the CRL of its CA has expired: this server needs a new one";
      case "untrusted":
        return "is not signed by a CA that is accepted here";
    }
  }

  /** Of several paths to a CA the best counts, and on each its worst certificate. */
  #statusOf(certificate: X509Certificate, search: Search, depth: number): CertificateStatus {
    if (depth >= MAX_PATH || --search.stepsLeft < 0) return "untrusted";
    const isAnchor = this.#anchors.some(({ raw }) => raw.equals(certificate.raw));
    if (isSelfSigned(certificate)) return isAnchor ? "valid" : "untrusted";
    let best: CertificateStatus = "untrusted";
    for (const issuer of [...this.#anchors, ...search.between]) {
      if (!hasSigned(issuer, certificate)) continue;
      const own = statusBy(this.#lists(issuer), certificate, search.now);
      best = better(best, worse(own, this.#statusOf(issuer, search, depth + 1)));
      if (best === "valid") return best;
    }
    // An issuing CA is trusted without its root; with the root, the root's CRL may revoke it.
    return isAnchor && best === "untrusted" ? "valid" : best;
  }
}

/** The state of a search for a path. */
interface Search {
  readonly between: readonly X509Certificate[];
  readonly now: Date | undefined;
  stepsLeft: number;
}

/** Whether this CA has signed the certificate, by name, key identifier and signature. */
function hasSigned(issuer: X509Certificate, certificate: X509Certificate): boolean {
  return mayHaveSigned(issuer, certificate) && (issuer.ca || (mayBeRoot(issuer) && isSelfSigned(issuer)));
}

function statusBy(
  lists: readonly RevocationList[],
  certificate: X509Certificate,
  now: Date | undefined,
): CertificateStatus {
  if (lists.some((list) => list.has(certificate))) return "revoked";
  if (now === undefined || lists.length === 0) return "valid";
  // A CRL without a date of the next one does not expire (RFC 5280 §5.1.2.5 requires the date).
  return lists.every(({ nextUpdate }) => nextUpdate !== undefined && nextUpdate <= now) ? "crl_expired" : "valid";
}

function worse(one: CertificateStatus, other: CertificateStatus): CertificateStatus {
  return STATUSES.indexOf(one) > STATUSES.indexOf(other) ? one : other;
}

function better(one: CertificateStatus, other: CertificateStatus): CertificateStatus {
  return STATUSES.indexOf(one) < STATUSES.indexOf(other) ? one : other;
}
