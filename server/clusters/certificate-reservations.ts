import { createHash, X509Certificate } from "node:crypto";
import { RecentMap } from "../../shared/basics/recent-map.ts";
import { type Outline, outline } from "../../shared/documents/overlap-index.ts";
import type { Reservation } from "../../shared/documents/resolve-conflicts.ts";
import { printable } from "../../shared/outcomes.ts";
import { publicKeyOf } from "../../shared/tls/certificate-fields.ts";
import { isSelfSigned, mayHaveSigned } from "../../shared/tls/client-trust.ts";
import { type IdentityPattern, patternsMeet } from "../../shared/tls/identity.ts";
import { certificates } from "../../shared/tls/tls-material.ts";
import { type Cluster, describeCluster, SIDES, type SideName } from "./cluster.ts";

/** The CAs (PEM) of the flags, for sides that have none of their own. Changed CAs make a new object. */
export interface FlagAuthorities {
  readonly agents?: string | undefined;
  readonly callers?: string | undefined;
}

/**
 * The certificates that a cluster accepts on both sides: a certificate of one cluster's agents must open no port of
 * another cluster, its callers' port included (decision 0021).
 */
export function certificateReservations(cluster: Cluster, flags: FlagAuthorities): Reservation[] {
  return SIDES.flatMap((side) => {
    const { ca, identities, token } = cluster[side];
    const byTokenOnly = token !== undefined && identities.length === 0;
    const bySocketOnly = side === "callers" && cluster.callers.uds !== undefined && cluster.callers.sni.length === 0;
    if (ca === undefined && (byTokenOnly || bySocketOnly)) return [];
    return authoritiesOf(ca ?? flags[side] ?? "").flatMap((authority) => {
      const accepted = { side, authority, identities, ofFlags: ca === undefined };
      const reserve = (key: string, shares?: string) => new CertificateReservation(cluster, accepted, key, shares);
      const { key, subject, issuer, isSelfSigned } = authority;
      return [
        reserve(`the CA ${key}`),
        ...(isSelfSigned ? [] : [reserve(`CAs named ${issuer}`)]),
        // Two CAs of one name that only sign others do not overlap.
        ...(isSelfSigned || subject !== issuer ? [reserve(`CAs named ${subject}`, "as issuers")] : []),
      ];
    });
  });
}

/** The certificates of one CA that a side accepts. */
interface AcceptedCertificates {
  readonly side: SideName;
  readonly authority: BundledCa;
  /** Empty: every certificate of the CA. */
  readonly identities: readonly IdentityPattern[];
  readonly ofFlags: boolean;
}

class CertificateReservation implements Reservation {
  readonly key: string;
  readonly owner: Cluster;
  readonly shares: string | undefined;
  readonly #accepted: AcceptedCertificates;

  constructor(owner: Cluster, accepted: AcceptedCertificates, key: string, shares: string | undefined) {
    this.key = key;
    this.owner = owner;
    this.shares = shares;
    this.#accepted = accepted;
  }

  outlines(): readonly Outline[] | undefined {
    const { identities } = this.#accepted;
    return identities.length === 0 ? undefined : identities.map(outlineOf);
  }

  overlaps(other: CertificateReservation): boolean {
    const [mine, theirs] = [this.#accepted, other.#accepted];
    const open = mine.identities.length === 0 || theirs.identities.length === 0;
    return (
      (open || overlapping(mine.identities, theirs.identities) !== undefined) &&
      mine.authority.overlaps(theirs.authority)
    );
  }

  objection(other: CertificateReservation): string {
    const { side, authority, identities, ofFlags } = this.#accepted;
    const theirs = other.#accepted;
    const whose = describeCluster(other.owner);
    const which = ofFlags ? `${side}.ca is left out, and the server's is` : `the CA in ${side}.ca is`;
    const kin = authority.key === theirs.authority.key ? "also that of" : "signed by, or has signed, one of";
    const shared = `${which} ${kin} ${whose}`;
    const pair = overlapping(identities, theirs.identities);
    if (pair !== undefined) {
      const [own, foreign] = pair.map(({ text }) => `"${printable(text, 60)}"`);
      return `${shared}, and one certificate can have ${own} here and ${foreign} there: name one field in both, with values that differ.`;
    }
    const who = identities.length === 0 ? `${side}.identities is missing here` : `${whose} has no identities for it`;
    return `${shared}, and ${who}: without them a certificate of one cluster would open the other.`;
  }
}

function overlapping(
  ours: readonly IdentityPattern[],
  theirs: readonly IdentityPattern[],
): [IdentityPattern, IdentityPattern] | undefined {
  for (const own of ours) {
    for (const other of theirs) if (patternsMeet(own, other)) return [own, other];
  }
  return undefined;
}

/** Leaves out a field that a pattern names twice, because its values need not begin alike. */
export function outlineOf({ parts }: IdentityPattern): Outline {
  const named = new Map<string, string>();
  for (const { field, pieces } of parts) {
    if (parts.filter((part) => part.field === field).length === 1) outline(named, field, pieces);
  }
  return named;
}

/** A CA certificate of a bundle, identified by its key. */
class BundledCa {
  /** Hash of its public key, which survives a renewal with the same key and every spelling of the PEM text. */
  readonly key: string;
  /** Distinguished names as OpenSSL compares them: without case and runs of spaces. */
  readonly subject: string;
  readonly issuer: string;
  /** No other CA has signed it. */
  readonly isSelfSigned: boolean;
  /** DER, because the parsed certificate takes several KiB and there may be thousands. */
  readonly #raw: Buffer;
  /** Whether the CA of a key has signed it. Verifying takes 100 µs, and a thousand bundles may hold one root. */
  readonly #signers = new Map<string, boolean>();

  constructor(certificate: X509Certificate) {
    this.#raw = certificate.raw;
    this.key = createHash("sha256").update(keyBytes(this.#raw)).digest("base64url");
    this.subject = folded(certificate.subject);
    this.issuer = folded(certificate.issuer);
    this.isSelfSigned = isSelfSigned(certificate);
  }

  /** Whether one certificate may be verified by both. */
  overlaps(other: BundledCa): boolean {
    return this.key === other.key || this.#isSignedBy(other) || other.#isSignedBy(this);
  }

  #isSignedBy(other: BundledCa): boolean {
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
    return raw; // OpenSSL accepts certificates that are not quite DER
  }
}

function folded(name: string): string {
  return name.toLowerCase().replace(/[^\S\n]+/g, " ");
}

/** Many clusters use the CA of the flags, and one bundle often serves both sides of a cluster. */
const recent = new RecentMap<string, readonly BundledCa[]>(64);

/** The CAs of a bundle (PEM). */
export function authoritiesOf(pem: string): readonly BundledCa[] {
  return recent.getOrMake(pem, () => certificates(pem).map((certificate) => new BundledCa(certificate)));
}
