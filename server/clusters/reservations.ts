import { wildcardsOverlap } from "../../shared/basics/text.ts";
import { type Outline, outline } from "../../shared/documents/overlap-index.ts";
import {
  type FileCandidate,
  NameReservation,
  type Reservation,
  type Resolved,
  resolveConflicts,
} from "../../shared/documents/resolve-conflicts.ts";
import { printable } from "../../shared/outcomes.ts";
import { authoritiesOf, type BundledCa } from "../../shared/tls/authorities.ts";
import { type IdentityPattern, patternsMeet } from "../../shared/tls/identity.ts";
import { type Cluster, describeCluster, SIDES, type SideName } from "./cluster.ts";
import type { TokenTrust } from "./document.ts";

/** The CAs (PEM) of the flags, for sides that have none of their own. Changed CAs make a new object. */
export interface FlagAuthorities {
  readonly agents?: string | undefined;
  readonly callers?: string | undefined;
}

export const NO_FLAGS: FlagAuthorities = {};

/**
 * Decides which files of clusters can be in use together (decision 0021). What is in use was resolved by `flagsBefore`:
 * with other CAs in the flags it can conflict with itself, and then both files stay in use and one is a problem.
 */
export function resolveClusters(
  candidates: readonly FileCandidate<Cluster>[],
  flags: FlagAuthorities = NO_FLAGS,
  flagsBefore: FlagAuthorities | undefined = flags,
): Resolved<Cluster> {
  return resolveConflicts(candidates, {
    reservationsOf: (cluster) => reservationsOf(cluster, flags),
    prefix: ({ name }) => `cluster "${name}": `,
    wasResolved: flags === flagsBefore,
  });
}

/** The reservations of a cluster do not change as long as the CAs of the flags stay. */
const known = new WeakMap<Cluster, { readonly by: FlagAuthorities; readonly reservations: readonly Reservation[] }>();

/** Everything that a cluster cannot have together with others. */
function reservationsOf(cluster: Cluster, flags: FlagAuthorities): readonly Reservation[] {
  const found = known.get(cluster);
  if (found?.by === flags) return found.reservations;
  const reservations = [
    ...nameReservations(cluster),
    ...certificateReservations(cluster, flags),
    ...tokenReservations(cluster),
  ];
  known.set(cluster, { by: flags, reservations });
  return reservations;
}

// ── names ───────────────────────────────────────────────────────────────────────────────────────────────────────────

/** The cluster's own name, its socket and the server names of its clients. */
function nameReservations(cluster: Cluster): Reservation[] {
  const { name, callers } = cluster;
  const owner = describeCluster(cluster);
  const names = SIDES.flatMap((side) => cluster[side].sni.flatMap((sni) => serverNameReservations(cluster, side, sni)));
  const own = { kind: "the name", name, cure: "give one of them another", owner };
  const reservations = [new NameReservation(cluster, own), ...names];
  if (callers.uds !== undefined) {
    const cure = "each cluster needs a socket of its own";
    reservations.push(new NameReservation(cluster, { kind: "callers.uds", name: callers.uds, cure, owner }));
  }
  return [...reservations, ...anyNameReservations(cluster)];
}

/** A star stands for one label (`ServerNames`), so that at most one wildcard covers a name. */
function serverNameReservations(cluster: Cluster, side: SideName, name: string): NameReservation[] {
  const cure = "a name leads to one cluster, so remove it from one of them";
  const reserved = { kind: `${side}.sni`, name, cure, owner: describeCluster(cluster) };
  const own = new NameReservation(cluster, reserved);
  const dot = name.indexOf(".");
  if (name.startsWith("*.") || dot < 0) return [own];
  return [own, new NameReservation(cluster, { ...reserved, wildcard: `*${name.slice(dot)}` })];
}

/** A cluster without names is found under every name, which only works while it is the only cluster. */
function anyNameReservations(cluster: Cluster): Reservation[] {
  const { agents, callers } = cluster;
  const unreached = callers.sni.length === 0 && callers.uds === undefined;
  return [
    anyNameReservation(cluster, "agents", agents.sni.length === 0, "agents.sni"),
    anyNameReservation(cluster, "callers", unreached, "callers.sni or callers.uds"),
  ];
}

function anyNameReservation(owner: Cluster, side: SideName, isNameless: boolean, cure: string): Reservation {
  return {
    key: `any ${side}.sni`,
    owner,
    shares: isNameless ? undefined : "with names of its own",
    objection(other: Reservation & { readonly owner: Cluster }) {
      const theirs = describeCluster(other.owner);
      const who = isNameless
        ? `this one has none beside ${theirs}`
        : `${theirs} has none and answers to every name now`;
      return `with several clusters each needs ${cure}, and ${who}.`;
    },
  };
}

// ── certificates ────────────────────────────────────────────────────────────────────────────────────────────────────

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

// ── tokens ──────────────────────────────────────────────────────────────────────────────────────────────────────────

/**
 * The tokens that a cluster accepts. Different keys or API servers do not keep two clusters apart, because what is
 * behind a path or a URL can change after it was compared.
 */
export function tokenReservations(cluster: Cluster): Reservation[] {
  return SIDES.flatMap((side) => {
    const { token } = cluster[side];
    return token === undefined ? [] : [new TokenReservation(cluster, side, token)];
  });
}

class TokenReservation implements Reservation {
  readonly key: string;
  readonly owner: Cluster;
  readonly shares = undefined;
  readonly #side: SideName;
  readonly #audience: string;
  /** Absent where the API server decides on the issuer. */
  readonly #issuer: string | undefined;
  readonly #subjects: readonly SubjectPattern[];

  constructor(owner: Cluster, side: SideName, token: TokenTrust) {
    this.key = `tokens for ${token.audience}`;
    this.owner = owner;
    this.#side = side;
    this.#audience = token.audience;
    this.#issuer = token.kind === "jwt" ? token.issuer : undefined;
    const subjects =
      token.kind === "jwt"
        ? token.subjects
        : [`system:serviceaccount:${token.agentNamespace}:${token.agentServiceAccount}`];
    this.#subjects = subjects.map(subjectPattern);
  }

  outlines(): readonly Outline[] {
    return this.#subjects.map(({ text }) => {
      const issuer = outline(new Map(), "issuer", [this.#issuer ?? ""]);
      return outline(issuer, "subject", text.split("*"));
    });
  }

  overlaps(other: TokenReservation): boolean {
    if (this.#issuer !== undefined && other.#issuer !== undefined && this.#issuer !== other.#issuer) return false;
    return this.#overlapWith(other) !== undefined;
  }

  objection(other: TokenReservation): string {
    const [own, foreign] = (this.#overlapWith(other) ?? []).map(({ text }) => `"${printable(text, 80)}"`);
    const theirs = `${other.#side}.token of ${describeCluster(other.owner)}`;
    const audience = `"${printable(this.#audience, 60)}"`;
    return `${this.#side}.token (${own}) and ${theirs} (${foreign}) take the same tokens for the audience ${audience}: give each cluster an audience of its own.`;
  }

  #overlapWith(other: TokenReservation): [SubjectPattern, SubjectPattern] | undefined {
    for (const own of this.#subjects) {
      for (const foreign of other.#subjects) if (subjectsOverlap(own, foreign)) return [own, foreign];
    }
    return undefined;
  }
}

/** A pattern of subjects as server/tokens/verifier.ts matches it: a star ends at a colon, or alone is every subject. */
interface SubjectPattern {
  readonly text: string;
  /** Absent for every subject. */
  readonly parts?: readonly (readonly string[])[];
}

export function subjectPattern(text: string): SubjectPattern {
  return text === "*" ? { text } : { text, parts: text.split(":").map((part) => part.split("*")) };
}

/** Whether one subject can match both patterns. */
export function subjectsOverlap({ parts }: SubjectPattern, { parts: others }: SubjectPattern): boolean {
  if (parts === undefined || others === undefined) return true;
  return parts.length === others.length && parts.every((part, index) => wildcardsOverlap(part, others[index] ?? []));
}
