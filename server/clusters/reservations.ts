import {
  type FileCandidate,
  type Reservation,
  type Resolved,
  resolveConflicts,
} from "../../shared/documents/resolve-conflicts.ts";
import { printable } from "../../shared/outcomes.ts";
import { authoritiesOf, type BundledCa } from "../../shared/tls/authorities.ts";
import type { IdentityPattern } from "../../shared/tls/identity.ts";
import { type Cluster, type ClusterSide, SIDES, type SideName } from "./cluster.ts";
import type { TokenTrust } from "./document.ts";

/** The CAs (PEM) of the flags, for sides that have none of their own. */
export interface FlagAuthorities {
  readonly agents?: string | undefined;
  readonly callers?: string | undefined;
}

/** Decides which files of clusters can be in use together (decision 0021). */
export function resolveClusters(
  candidates: readonly FileCandidate<Cluster>[],
  flags: FlagAuthorities = {},
): Resolved<Cluster> {
  const ofFlags = { agents: authoritiesOf(flags.agents ?? ""), callers: authoritiesOf(flags.callers ?? "") };
  const clusters = new Set(candidates.flatMap(({ before, next = [] }) => [...before, ...next]));
  const trusted = [...clusters].flatMap((cluster) => SIDES.flatMap((side) => trustedBy(cluster, side, ofFlags)));
  const kinships = kinshipsAmong(new Set(trusted));
  return resolveConflicts(candidates, "cluster", (cluster) => [
    ...nameReservations(cluster),
    ...SIDES.flatMap((side) => [
      ...trustedBy(cluster, side, ofFlags)
        .flatMap((ca) => [ca.key, ...(kinships.get(ca) ?? [])])
        .flatMap((key) => certificateReservations(side, cluster[side], `CA ${key}`)),
      ...tokenReservations(side, cluster[side].token),
    ]),
  ]);
}

/**
 * A part of something that clusters share as long as each names its own value, such as the names under `*.x` or the
 * certificates of a CA. Absent `value`: all of it. Clusters that share in different ways conflict.
 */
function part(of: string, value: string | undefined, sentence: Sentence, way = "by value"): Reservation[] {
  if (value === undefined) return [{ key: of, ...sentence }];
  return [
    { key: of, shares: way, ...sentence },
    { key: `${of} ${value}`, ...sentence },
  ];
}

type Sentence = Pick<Reservation, "what" | "cure">;

// ── names ───────────────────────────────────────────────────────────────────────────────────────────────────────────

/** The cluster's own name and its socket, and the server names of its clients. */
function nameReservations({ name, agents, callers }: Cluster): Reservation[] {
  const sockets = callers.uds === undefined ? [] : [callers.uds];
  return [
    { key: `name ${name}`, what: `the name "${name}"`, cure: "give one of them another" },
    ...sockets.map((path) => {
      const what = `callers.uds "${path}"`;
      return { key: what, what, cure: "each cluster needs a socket of its own" };
    }),
    ...agents.sni.flatMap((sni) => serverName("agents.sni", sni)),
    ...callers.sni.flatMap((sni) => serverName("callers.sni", sni)),
    everyName("agents.sni", agents.sni, "agents.sni"),
    everyName("callers.sni", [...callers.sni, ...sockets], "callers.sni or callers.uds"),
  ];
}

/** A star covers one label (`ServerNames`), so that at most one wildcard covers a name. */
function serverName(list: string, name: string): Reservation[] {
  const wildcard = name.replace(/^[^.]*/, "*");
  return part(`${list} ${wildcard}`, name === wildcard ? undefined : name, {
    what: `${list} "${name}"`,
    cure: "a name leads to one cluster, so remove it from one of them",
  });
}

/** A cluster without names is found under every name, which only works while it is the only cluster. */
function everyName(key: string, [name]: readonly string[], needs: string): Reservation {
  const what = name === undefined ? `${key} (left out: every name)` : `"${name}"`;
  return { key, shares: name && "by names", what, cure: `with several clusters each needs ${needs}` };
}

// ── certificates ────────────────────────────────────────────────────────────────────────────────────────────────────

type TrustedCas = Readonly<Record<SideName, readonly BundledCa[]>>;

/** Parsing a CA takes 0.1 ms, and each change of a document compares those of all. */
const parsed = new WeakMap<ClusterSide, readonly BundledCa[]>();

/** The CAs by whose certificates clients of a side are let in. */
function trustedBy({ agents, callers }: Cluster, side: SideName, ofFlags: TrustedCas): readonly BundledCa[] {
  const one: ClusterSide = side === "agents" ? agents : callers;
  if (one.ca !== undefined) {
    const known = parsed.get(one) ?? authoritiesOf(one.ca);
    parsed.set(one, known);
    return known;
  }
  const byTokenOnly = one.token !== undefined && one.identities.length === 0;
  const bySocketOnly = side === "callers" && callers.uds !== undefined && callers.sni.length === 0;
  return byTokenOnly || bySocketOnly ? [] : ofFlags[side];
}

/**
 * The pairs of a CA and one that it has signed, by each of both, because both may verify one certificate. Two CAs that
 * a third one has signed are in no pair together.
 */
function kinshipsAmong(trusted: ReadonlySet<BundledCa>): ReadonlyMap<BundledCa, readonly string[]> {
  const kinships = new Map<BundledCa, string[]>();
  for (const signed of [...trusted].filter(({ isSelfSigned }) => !isSelfSigned)) {
    for (const signer of [...trusted].filter((one) => signed.overlaps(one))) {
      const pair = `${signer.key} and ${signed.key}`;
      for (const ca of [signer, signed]) kinships.set(ca, [...(kinships.get(ca) ?? []), pair]);
    }
  }
  return kinships;
}

/**
 * The certificates that a side accepts. Agents and callers of different clusters are compared, too: an agent's
 * certificate must not open the callers' port of another cluster.
 */
function certificateReservations(side: SideName, { ca, identities }: ClusterSide, of: string): Reservation[] {
  const bundle = ca === undefined ? `${side}.ca (left out: the server's)` : `${side}.ca`;
  const cure =
    "clusters that share a CA, or have one that signed the other's, name the same fields in identities, without wildcards, with other values";
  if (identities.length === 0) return [{ key: of, what: `${bundle} without ${side}.identities`, cure }];
  return identities.flatMap((pattern) => {
    const { fields, values } = literals(pattern) ?? {};
    const what = `${bundle} with ${values === undefined ? "the wildcard " : ""}"${printable(pattern.text, 60)}"`;
    return part(of, values, { what, cure }, fields);
  });
}

/**
 * The fields that a pattern names, and their values; `undefined` if it has a wildcard. A certificate that was issued
 * for a pattern has these values in these fields and no others, so that none matches two patterns of the same fields
 * with other values (decision 0021).
 */
function literals({ parts }: IdentityPattern): { readonly fields: string; readonly values: string } | undefined {
  if (parts.some(({ pieces }) => pieces.length > 1)) return undefined;
  const values = new Map(parts.map(({ field, pieces: [value] }) => [`${field}=${value}`, field]));
  return { fields: [...values.values()].sort().join(), values: JSON.stringify([...values.keys()].sort()) };
}

// ── tokens ──────────────────────────────────────────────────────────────────────────────────────────────────────────

/**
 * The tokens that a side accepts. Different keys or API servers do not keep two clusters apart, because what is behind
 * a path or a URL can change after it was compared.
 */
function tokenReservations(side: SideName, token: TokenTrust | undefined): Reservation[] {
  if (token === undefined) return [];
  const cure = "give each cluster an audience of its own";
  const what = `${side}.token.${token.kind} for the audience "${printable(token.audience, 60)}"`;
  const [issuer, subjects] =
    token.kind === "jwt"
      ? [token.issuer, token.subjects]
      : ["", [`system:serviceaccount:${token.agentNamespace}:${token.agentServiceAccount}`]];
  const ofSubjects = subjects.flatMap((subject) => {
    const sentence = { what: `${what} and the subject "${printable(subject, 80)}"`, cure };
    const key = `tokens ${JSON.stringify([token.audience, issuer])}`;
    return part(key, subject.includes("*") ? undefined : subject, sentence);
  });
  // An API decides by itself on the issuers that it accepts.
  return [{ key: `tokens for ${token.audience}`, shares: token.kind, what, cure }, ...ofSubjects];
}
