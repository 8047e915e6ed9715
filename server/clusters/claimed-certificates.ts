import { printable } from "../../shared/outcomes.ts";
import { type IdentityPattern, patternsMeet } from "../../shared/tls/identity.ts";
import { type Authority, authoritiesOf } from "./authority.ts";
import { type Claim, shown } from "./claim.ts";
import { type Cluster, SIDES, type SideName } from "./cluster.ts";
import { type Outline, outline } from "./overlap-index.ts";

/** The CAs (PEM) of the server's flags, for sides that have none of their own. Another object when they are others. */
export interface FlagAuthorities {
  readonly agents?: string | undefined;
  readonly callers?: string | undefined;
}

/**
 * Whose certificates are accepted, on both sides: a certificate of one cluster's agents must open no port of another
 * cluster, its callers' port included (decision 0021).
 */
export function certificateClaims(cluster: Cluster, flags: FlagAuthorities): Claim[] {
  return SIDES.flatMap((side) => {
    const { ca, identities, token } = cluster[side];
    const byTokenOnly = token !== undefined && identities.length === 0;
    const bySocketOnly = side === "callers" && cluster.callers.uds !== undefined && cluster.callers.sni.length === 0;
    if (ca === undefined && (byTokenOnly || bySocketOnly)) return [];
    return authoritiesOf(ca ?? flags[side] ?? "").flatMap((authority) => {
      const trust = { side, authority, identities, ofFlags: ca === undefined };
      const claim = (key: string, shares?: string) => new CertificateClaim(cluster, trust, key, shares);
      const { key, subject, issuer, isSelfSigned } = authority;
      return [
        claim(`the CA ${key}`),
        ...(isSelfSigned ? [] : [claim(`CAs named ${issuer}`)]),
        // Who may only have signed others has nothing to do with the next of that name.
        ...(isSelfSigned || subject !== issuer ? [claim(`CAs named ${subject}`, "as issuers")] : []),
      ];
    });
  });
}

interface Trust {
  readonly side: SideName;
  readonly authority: Authority;
  /** Empty: every certificate of the CA. */
  readonly identities: readonly IdentityPattern[];
  readonly ofFlags: boolean;
}

/** The certificates of one CA that a side accepts. */
class CertificateClaim implements Claim {
  readonly key: string;
  readonly cluster: Cluster;
  readonly shares: string | undefined;
  readonly #trust: Trust;

  constructor(cluster: Cluster, trust: Trust, key: string, shares: string | undefined) {
    this.key = key;
    this.cluster = cluster;
    this.shares = shares;
    this.#trust = trust;
  }

  outlines(): readonly Outline[] | undefined {
    const { identities } = this.#trust;
    return identities.length === 0 ? undefined : identities.map(outlineOf);
  }

  overlaps(other: CertificateClaim): boolean {
    const [mine, theirs] = [this.#trust, other.#trust];
    const open = mine.identities.length === 0 || theirs.identities.length === 0;
    return (
      (open || meeting(mine.identities, theirs.identities) !== undefined) && mine.authority.overlaps(theirs.authority)
    );
  }

  objection(other: CertificateClaim): string {
    const { side, authority, identities, ofFlags } = this.#trust;
    const theirs = other.#trust;
    const whose = shown(other.cluster);
    const which = ofFlags ? `${side}.ca is left out, and the server's is` : `the CA in ${side}.ca is`;
    const kin = authority.key === theirs.authority.key ? "also that of" : "signed by, or has signed, one of";
    const shared = `${which} ${kin} ${whose}`;
    const pair = meeting(identities, theirs.identities);
    if (pair !== undefined) {
      const [own, foreign] = pair.map(({ text }) => `"${printable(text, 60)}"`);
      return `${shared}, and one certificate can have ${own} here and ${foreign} there: name one field in both, with values that differ.`;
    }
    const who = identities.length === 0 ? `${side}.identities is missing here` : `${whose} has no identities for it`;
    return `${shared}, and ${who}: without them a certificate of one cluster would open the other.`;
  }
}

function meeting(
  ours: readonly IdentityPattern[],
  theirs: readonly IdentityPattern[],
): [IdentityPattern, IdentityPattern] | undefined {
  for (const own of ours) {
    for (const other of theirs) if (patternsMeet(own, other)) return [own, other];
  }
  return undefined;
}

/** Leaves out a field that a pattern names twice: its values need not begin alike. */
export function outlineOf({ parts }: IdentityPattern): Outline {
  const named = new Map<string, string>();
  for (const { field, pieces } of parts) {
    if (parts.filter((part) => part.field === field).length === 1) outline(named, field, pieces);
  }
  return named;
}
