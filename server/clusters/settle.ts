import { shownDocument } from "../../shared/documents/yaml-documents.ts";
import { type Claim, conflict } from "./claim.ts";
import type { FlagAuthorities } from "./claimed-certificates.ts";
import { claimsOf } from "./claims.ts";
import type { Cluster } from "./cluster.ts";
import { OverlapIndex, OverlapTexts } from "./overlap-index.ts";

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

const NO_FLAGS: FlagAuthorities = {};

/**
 * Which files can be in use together. The file is the unit: one whose clusters conflict with another's keeps its old
 * version, and whoever held a claim before goes first. A file that keeps its old version claims again what it had given
 * up, so this repeats until nobody new conflicts. What is in use was settled by `flagsBefore`: with other CAs in the flags it
 * can conflict with itself, and then both files stay in use and one is a problem.
 */
export function settle(
  candidates: readonly Candidate[],
  flags: FlagAuthorities = NO_FLAGS,
  flagsBefore: FlagAuthorities = flags,
): Settled {
  const settling = new Settling(candidates, flags, flags === flagsBefore);
  const inUse = new Map(candidates.map(({ file, before, next }) => [file, next ?? before]));
  const problems: { file: string; sentence: string }[] = [];
  const losers = new Set<string>();
  for (;;) {
    const fresh = [...settling.losersIn(inUse)].filter(([file]) => !losers.has(file));
    if (fresh.length === 0) return { inUse, problems };
    for (const [file, sentences] of fresh) {
      losers.add(file);
      inUse.set(file, settling.before(file));
      for (const sentence of sentences) problems.push({ file, sentence });
    }
  }
}

/** One cluster's claim. */
interface Demand {
  readonly file: string;
  readonly claim: Claim;
}

/** The demands for one key: of clusters that have stood beside each other before, and of all others. */
interface Demands {
  readonly standing: Demand[];
  readonly moving: Demand[];
}

class Settling {
  readonly #flags: FlagAuthorities;
  readonly #before: ReadonlyMap<string, readonly Cluster[]>;
  /** They do not conflict with each other: one edit must not compare the claims of a thousand clusters pair by pair. */
  readonly #standing: ReadonlySet<Cluster>;
  /** What newcomers and changed clusters claim: only here can there be a conflict. */
  readonly #keys: ReadonlySet<string>;
  /** What was in use, by the names of the clusters. */
  readonly #held: ReadonlyMap<string, readonly { readonly file: string; readonly cluster: Cluster }[]>;

  constructor(candidates: readonly Candidate[], flags: FlagAuthorities, isSettled: boolean) {
    this.#flags = flags;
    this.#before = new Map(candidates.map((candidate) => [candidate.file, candidate.before]));
    const inUse = candidates.flatMap((candidate) => candidate.before);
    this.#standing = new Set(isSettled ? inUse : []);
    const coming = candidates.flatMap(({ next }) => next ?? []).filter((cluster) => !this.#standing.has(cluster));
    const compared = isSettled ? coming : [...coming, ...inUse];
    this.#keys = new Set(compared.flatMap((cluster) => this.#claims(cluster).map(({ key }) => key)));
    const held = new Map<string, { file: string; cluster: Cluster }[]>();
    for (const { file, before } of candidates) {
      for (const cluster of before) held.set(cluster.name, [...(held.get(cluster.name) ?? []), { file, cluster }]);
    }
    this.#held = held;
  }

  before(file: string): readonly Cluster[] {
    return this.#before.get(file) ?? [];
  }

  /** Files that cannot be in use beside the others, with a sentence for each conflict. */
  losersIn(inUse: ReadonlyMap<string, readonly Cluster[]>): ReadonlyMap<string, ReadonlySet<string>> {
    const groups = this.#contested(inUse);
    const losers = new Map<string, Set<string>>();
    const refuse = ({ file, claim }: Demand, other: Demand): void => {
      const { name, document } = claim.cluster;
      const sentence = `${shownDocument(document)}cluster "${name}": ${claim.objection(other.claim)}`;
      losers.set(file, (losers.get(file) ?? new Set()).add(sentence));
    };
    for (const { standing, moving, texts } of groups) {
      const index = new OverlapIndex<Demand>(texts);
      for (const demand of standing) index.add(demand, demand.claim);
      for (const demand of moving) {
        const other = index.near(demand.claim).find(({ claim }) => conflict(claim, demand.claim));
        if (other !== undefined) refuse(demand, other);
      }
    }
    for (const { moving, texts } of groups) {
      const granted = new OverlapIndex<Demand>(texts);
      for (const demand of moving) {
        for (const other of granted.near(demand.claim)) {
          if (!conflict(other.claim, demand.claim) || losers.has(other.file)) continue;
          if (this.#rank(demand, other) < this.#rank(other, demand)) refuse(other, demand);
          else {
            refuse(demand, other);
            break;
          }
        }
        if (!losers.has(demand.file)) granted.add(demand, demand.claim);
      }
    }
    return losers;
  }

  /** The demands for each key that not all share in the same way, in the order of the files. */
  #contested(inUse: ReadonlyMap<string, readonly Cluster[]>): (Demands & { readonly texts: OverlapTexts })[] {
    const byKey = new Map<string, Demands>();
    for (const [file, clusters] of inUse) {
      for (const cluster of clusters) {
        const kind = this.#standing.has(cluster) ? "standing" : "moving";
        for (const claim of this.#claims(cluster)) {
          if (!this.#keys.has(claim.key)) continue;
          const demands = byKey.get(claim.key) ?? { standing: [], moving: [] };
          demands[kind].push({ file, claim });
          byKey.set(claim.key, demands);
        }
      }
    }
    const contested = [...byKey.values()].filter(({ standing, moving: [first, ...others] }) => {
      if (first === undefined || others.length + standing.length === 0) return false;
      const { shares } = first.claim;
      return shares === undefined || [...others, ...standing].some(({ claim }) => claim.shares !== shares);
    });
    return contested.map((demands) => {
      const [moving, standing] = [demands.moving, demands.standing].map((all) => all.map(({ claim }) => claim));
      return { ...demands, texts: new OverlapTexts(moving ?? [], standing ?? []) };
    });
  }

  /** Who held before what the other wants goes first. 0: in this file; 1: in another, from which it has moved; 2: nobody. */
  #rank({ file, claim }: Demand, other: Demand): number {
    const ranks = (this.#held.get(claim.cluster.name) ?? [])
      .filter(({ cluster }) => this.#claims(cluster).some((own) => own.key === claim.key && conflict(own, other.claim)))
      .map((held) => (held.file === file ? 0 : 1));
    return Math.min(2, ...ranks);
  }

  #claims(cluster: Cluster): readonly Claim[] {
    return claimsOf(cluster, this.#flags);
  }
}
