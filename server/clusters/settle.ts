import { shownDocument } from "../../shared/process/yaml-documents.ts";
import { type Claim, claimsOf, type FlagAuthorities, NO_FLAG_AUTHORITIES } from "./claims.ts";
import type { Cluster } from "./cluster.ts";

/** A file of clusters: what is in use of it, and what it says now; `undefined`: nothing that could be used. */
export interface Candidate {
  readonly file: string;
  readonly before: readonly Cluster[];
  readonly next: readonly Cluster[] | undefined;
}

export interface Settled {
  /** What is in use from now on, by file. */
  readonly inUse: ReadonlyMap<string, readonly Cluster[]>;
  readonly problems: readonly { readonly file: string; readonly sentence: string }[];
}

/** One cluster's wish for one key; a lower rank goes first. */
interface Demand {
  readonly file: string;
  readonly cluster: Cluster;
  readonly claim: Claim;
  readonly rank: number;
}

/**
 * Which files can be in use together. The file is the unit: one whose clusters are in the way of another's keeps its old
 * version, and whoever held a claim before goes first. A file that keeps its old version claims again what it had given
 * up, so this repeats until nobody new is in the way.
 */
export function settle(candidates: readonly Candidate[], flags: FlagAuthorities = NO_FLAG_AUTHORITIES): Settled {
  const claims = (cluster: Cluster): readonly Claim[] => claimsOf(cluster, flags);
  const keys = keysInMotion(candidates, claims);
  const held = heldBefore(candidates, keys, claims);
  const before = new Map(candidates.map((candidate) => [candidate.file, candidate.before]));
  const inUse = new Map(candidates.map(({ file, before, next }) => [file, next ?? before]));
  const problems: { file: string; sentence: string }[] = [];
  const losers = new Set<string>();
  for (;;) {
    const found = losersIn(inUse, held, keys, claims);
    const fresh = [...found].filter(([file]) => !losers.has(file));
    if (fresh.length === 0) return { inUse, problems };
    for (const [file, sentences] of fresh) {
      losers.add(file);
      inUse.set(file, before.get(file) ?? []);
      for (const sentence of sentences) problems.push({ file, sentence });
    }
  }
}

type ClaimsOf = (cluster: Cluster) => readonly Claim[];

/** Only here can anything have come into the way of anything: one edit must not weigh the claims of a thousand clusters. */
function keysInMotion(candidates: readonly Candidate[], claimsOf: ClaimsOf): ReadonlySet<string> {
  const moving = candidates.filter(({ before, next }) => next !== undefined && next !== before);
  const clusters = moving.flatMap(({ before, next }) => [...before, ...(next ?? [])]);
  return new Set(clusters.flatMap((cluster) => claimsOf(cluster).map(({ key }) => key)));
}

/** Which clusters held a key, in which file, and whether alone. */
type Held = ReadonlyMap<string, ReadonlyMap<string, { readonly file: string; readonly exclusive: boolean }>>;

function heldBefore(candidates: readonly Candidate[], keys: ReadonlySet<string>, claimsOf: ClaimsOf): Held {
  const held = new Map<string, Map<string, { file: string; exclusive: boolean }>>();
  for (const { file, before } of candidates) {
    for (const cluster of before) {
      for (const { key, exclusive } of claimsOf(cluster)) {
        if (!keys.has(key)) continue;
        const holders = held.get(key) ?? new Map();
        holders.set(cluster.name, { file, exclusive: exclusive || holders.get(cluster.name)?.exclusive === true });
        held.set(key, holders);
      }
    }
  }
  return held;
}

function losersIn(
  inUse: ReadonlyMap<string, readonly Cluster[]>,
  held: Held,
  keys: ReadonlySet<string>,
  claimsOf: ClaimsOf,
): Map<string, string[]> {
  const losers = new Map<string, string[]>();
  for (const demands of contested(inUse, held, keys, claimsOf)) {
    demands.sort((one, other) => one.rank - other.rank);
    const holders: Demand[] = [];
    for (const demand of demands) {
      const other = holders.find(
        (holder) => holder.cluster !== demand.cluster && (holder.claim.exclusive || demand.claim.exclusive),
      );
      if (other === undefined) holders.push(demand);
      else {
        const { name, document } = demand.cluster;
        const sentence = `${shownDocument(document)}cluster "${name}": ${demand.claim.objection(other.cluster)}`;
        losers.set(demand.file, [...(losers.get(demand.file) ?? []), sentence]);
      }
    }
  }
  return losers;
}

/** The demands of each key that somebody wants alone and somebody else wants as well. */
function contested(
  inUse: ReadonlyMap<string, readonly Cluster[]>,
  held: Held,
  keys: ReadonlySet<string>,
  claimsOf: ClaimsOf,
): Demand[][] {
  const byKey = new Map<string, Demand[]>();
  for (const [file, clusters] of inUse) {
    for (const cluster of clusters) {
      for (const claim of claimsOf(cluster)) {
        if (!keys.has(claim.key)) continue;
        const demands = byKey.get(claim.key) ?? [];
        demands.push({ file, cluster, claim, rank: rankOf(file, cluster, claim, held) });
        byKey.set(claim.key, demands);
      }
    }
  }
  return [...byKey.values()].filter((demands) => demands.length > 1 && demands.some(({ claim }) => claim.exclusive));
}

/** 0: this file held it for this cluster, and no less; 1: a cluster that has moved to another file; 2: a newcomer. */
function rankOf(file: string, cluster: Cluster, { key, exclusive }: Claim, held: Held): number {
  const holder = held.get(key)?.get(cluster.name);
  if (holder === undefined || (exclusive && !holder.exclusive)) return 2;
  return holder.file === file ? 0 : 1;
}
