import { type Outline, outline } from "../../shared/documents/overlap-index.ts";
import type { Reservation } from "../../shared/documents/resolve-conflicts.ts";
import { printable } from "../../shared/outcomes.ts";
import { authoritiesOf, type BundledCa } from "../../shared/tls/authorities.ts";
import { type IdentityPattern, patternsMeet } from "../../shared/tls/identity.ts";
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
