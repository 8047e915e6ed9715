import { X509Certificate } from "node:crypto";
import { RecentMap } from "../basics/recent-map.ts";
import { mayBeRoot } from "./certificate-fields.ts";
import type { RevocationList } from "./revocation-list.ts";
import { certificates } from "./tls-material.ts";

/** How a certificate stands by a set of CAs and their CRLs, the best first; `crl_expired`: the CRL that should say has expired. */
const STATUSES = ["valid", "crl_expired", "revoked", "untrusted"] as const;
export type CertificateStatus = (typeof STATUSES)[number];

/** A path with more certificates than this is none: real ones have three. */
const MAX_PATH = 10;
/** So many certificates are looked at for one client: CAs that have signed each other make paths without end. */
const MAX_STEPS = 64;
/** CAs whose CRLs are remembered: clients bring along those in the middle. */
const MAX_KEPT = 64;

/**
 * The CAs and CRLs by which clients are verified now, for clients whose certificates a handshake has verified. It finds a
 * path from those certificates to one of the CAs, by names, key identifiers, signatures and the right to sign, on which no
 * certificate is revoked. What a CA says beyond that about the names under it (RFC 5280 §4.2.1.10) counts with the next
 * handshake. The dates of certificates do not count: time alone ends no open connection (decision 0022).
 */
export class ClientTrust {
  readonly ca: string;
  readonly lists: readonly RevocationList[];
  readonly #anchors: readonly X509Certificate[];
  /** CRLs by the fingerprint of a CA: whether they are its own takes a look at every byte of them. */
  readonly #listsOf = new RecentMap<string, readonly RevocationList[]>(MAX_KEPT);

  /** `ca`: PEM; empty: there is none that would count. */
  constructor(ca: string, lists: readonly RevocationList[] = []) {
    this.ca = ca;
    this.lists = lists;
    this.#anchors = certificates(ca);
  }

  /** Is this CRL of one of the CAs? */
  knows(list: RevocationList): boolean {
    return this.#anchors.some((anchor) => this.#lists(anchor).includes(list));
  }

  /** By name and key, so that a CA that was renewed or signed by another one as well revokes the same. */
  #lists(issuer: X509Certificate): readonly RevocationList[] {
    if (this.lists.length === 0) return [];
    return this.#listsOf.getOrMake(issuer.fingerprint256, () => this.lists.filter((list) => list.isOf(issuer)));
  }

  /** `chain`: the client's certificate, then those between it and its CA (DER). Without a time no CRL is stale. */
  status(chain: readonly Buffer[], now?: Date): CertificateStatus {
    const [leaf, ...between] = chain.map((der) => new X509Certificate(der));
    return leaf === undefined ? "untrusted" : this.#statusOf(leaf, { between, now, stepsLeft: MAX_STEPS }, 0);
  }

  /** Of several paths to a CA the best counts, and on each its worst certificate. */
  #statusOf(certificate: X509Certificate, search: Search, depth: number): CertificateStatus {
    if (depth >= MAX_PATH || --search.stepsLeft < 0) return "untrusted";
    // OpenSSL ends a path at a CA that has signed itself; one in the middle is trusted through its own.
    if (isSelfSigned(certificate)) {
      return this.#anchors.some(({ raw }) => raw.equals(certificate.raw)) ? "valid" : "untrusted";
    }
    let best: CertificateStatus = "untrusted";
    for (const issuer of [...this.#anchors, ...search.between]) {
      if (!hasSigned(issuer, certificate)) continue;
      const own = statusBy(this.#lists(issuer), certificate, search.now);
      best = better(best, worse(own, this.#statusOf(issuer, search, depth + 1)));
      if (best === "valid") return best;
    }
    return best;
  }
}

/** What a path is looked for with. */
interface Search {
  readonly between: readonly X509Certificate[];
  readonly now: Date | undefined;
  stepsLeft: number;
}

/** Has it signed itself? Not by `checkIssued`: a client's certificate that is trusted as it is has no right to sign. */
export function isSelfSigned(certificate: X509Certificate): boolean {
  return certificate.subject === certificate.issuer && isSignedBy(certificate, certificate);
}

function isSignedBy(certificate: X509Certificate, issuer: X509Certificate): boolean {
  try {
    return certificate.verify(issuer.publicKey);
  } catch {
    return false; // a key of a kind that Node does not know
  }
}

/** Has this CA signed that certificate, by name, key identifier and signature? */
export function hasSigned(issuer: X509Certificate, certificate: X509Certificate): boolean {
  return mayHaveSigned(issuer, certificate) && (issuer.ca || (mayBeRoot(issuer) && isSelfSigned(issuer)));
}

/**
 * Has this certificate signed that one, whether or not it says that it is a CA? Verifiers differ in what they accept as
 * a CA. Where the trust of clusters is compared, it is safe to assume too many CAs.
 */
export function mayHaveSigned(issuer: X509Certificate, certificate: X509Certificate): boolean {
  return certificate.checkIssued(issuer) && isSignedBy(certificate, issuer);
}

function statusBy(
  lists: readonly RevocationList[],
  certificate: X509Certificate,
  now: Date | undefined,
): CertificateStatus {
  if (lists.some((list) => list.has(certificate))) return "revoked";
  return now !== undefined && lists.length > 0 && lists.every((list) => hasExpired(list, now))
    ? "crl_expired"
    : "valid";
}

/** One that does not say when the next comes is good until then (RFC 5280 §5.1.2.5 wants it said). */
export function hasExpired({ nextUpdate }: RevocationList, now: Date): boolean {
  return nextUpdate !== undefined && nextUpdate <= now;
}

function worse(one: CertificateStatus, other: CertificateStatus): CertificateStatus {
  return STATUSES.indexOf(one) > STATUSES.indexOf(other) ? one : other;
}

function better(one: CertificateStatus, other: CertificateStatus): CertificateStatus {
  return STATUSES.indexOf(one) < STATUSES.indexOf(other) ? one : other;
}
