import { type Outlined, OverlapIndex } from "./overlap-index.ts";
import { shownDocument } from "./yaml.ts";

/** A document of a folder, as far as conflicts need it. */
interface NamedDocument {
  readonly name: string;
  /** Number of the document in a file of several documents. */
  readonly document?: number;
}

/**
 * Something that two documents may not both have as far as it overlaps: a name, a socket, the certificates of a CA, the
 * tokens for an audience. Only reservations with the same key can conflict, and all of one key are of one class.
 */
export interface Reservation extends Outlined {
  readonly key: string;
  readonly owner: NamedDocument;
  /** Two reservations of one key that share in the same way never conflict, like two readers of a lock. */
  readonly shares: string | undefined;
  /** Asked only if the two do not share in the same way; absent: it always does. */
  overlaps?(other: Reservation): boolean;
  /** The sentence for the author of this document when `other` keeps it out. */
  objection(other: Reservation): string;
}

/** Whether two reservations cannot both be granted. */
function conflict(one: Reservation, other: Reservation): boolean {
  const { shares } = one;
  if (one.owner === other.owner || (shares !== undefined && shares === other.shares)) return false;
  return one.overlaps?.(other) ?? true;
}

interface ReservedName {
  /** The kind of name, with the article of a sentence or as the path of a key. */
  readonly kind: string;
  readonly name: string;
  readonly cure: string;
  /** The document in sentences for the authors of others. */
  readonly owner: string;
  /**
   * A wildcard that covers the name. Names under one wildcard do not conflict with each other, but with the wildcard.
   */
  readonly wildcard?: string;
}

export class NameReservation implements Reservation {
  readonly key: string;
  readonly owner: NamedDocument;
  readonly shares: string | undefined;
  readonly #name: ReservedName;

  constructor(owner: NamedDocument, name: ReservedName) {
    this.key = `${name.kind} ${name.wildcard ?? name.name}`;
    this.owner = owner;
    this.shares = name.wildcard === undefined ? undefined : "under the wildcard";
    this.#name = name;
  }

  objection(by: NameReservation): string {
    const { kind, name, cure } = this.#name;
    const other = by.#name;
    const state = name === other.name ? `is taken by ${other.owner}` : `overlaps "${other.name}" of ${other.owner}`;
    return `${kind} "${name}" ${state}: ${cure}.`;
  }
}

/** A file of documents: those that are in use, and those that it has now; `undefined` if it cannot be used. */
export interface FileCandidate<T> {
  readonly file: string;
  readonly before: readonly T[];
  readonly next: readonly T[] | undefined;
}

/** A file that is not in use as it is now. Its last version, if there is one, stays in use. */
export interface DocumentProblem {
  readonly file: string;
  readonly sentence: string;
}

export interface Resolved<T> {
  /** The documents in use from now on, by file. */
  readonly inUse: ReadonlyMap<string, readonly T[]>;
  readonly problems: readonly DocumentProblem[];
}

interface ConflictRules<T> {
  reservationsOf(document: T, file: string): readonly Reservation[];
  /** Begins the sentences about a document, such as `cluster "blue": `. */
  prefix(document: T): string;
  /**
   * What is in use has no conflicts by these rules. Otherwise both of two files in conflict stay, and one is a problem.
   */
  readonly wasResolved: boolean;
}

/**
 * Decides which files can be in use together. The file is the unit: one that conflicts with another keeps its last
 * version. Whoever has a reservation and still wants it keeps it. A file that keeps its last version reserves again
 * what it had given up, so this repeats until no further file conflicts.
 */
export function resolveConflicts<T extends NamedDocument>(
  candidates: readonly FileCandidate<T>[],
  rules: ConflictRules<T>,
): Resolved<T> {
  const resolution = new Resolution(candidates, rules);
  const inUse = new Map(candidates.map(({ file, before, next }) => [file, next ?? before]));
  const problems: DocumentProblem[] = [];
  const losers = new Set<string>();
  for (;;) {
    const fresh = [...resolution.losersIn(inUse)].filter(([file]) => !losers.has(file));
    if (fresh.length === 0) return { inUse, problems };
    for (const [file, sentences] of fresh) {
      losers.add(file);
      inUse.set(file, resolution.before(file));
      for (const sentence of sentences) problems.push({ file, sentence });
    }
  }
}

/** One reservation that a file wants. */
interface Demand<T> {
  readonly file: string;
  readonly document: T;
  readonly wanted: Reservation;
}

/** The demands for one key: of documents that were in use together before, and of all others. */
interface Demands<T> {
  readonly unchanged: Demand<T>[];
  readonly changed: Demand<T>[];
}

/** The changed demands for one key, and all that are granted. */
interface Contest<T> {
  readonly changed: readonly Demand<T>[];
  readonly index: OverlapIndex<Demand<T>>;
}

function wantedBy({ wanted }: Demand<unknown>): Reservation {
  return wanted;
}

class Resolution<T extends NamedDocument> {
  readonly #rules: ConflictRules<T>;
  readonly #before: ReadonlyMap<string, readonly T[]>;
  /**
   * These do not conflict with each other: one edit must not compare the reservations of a thousand documents in pairs.
   */
  readonly #unchanged: ReadonlySet<T>;
  /** The keys that new and changed documents reserve; only there can be a conflict. */
  readonly #keys: ReadonlySet<string>;
  /** The reservations for these keys that were in use. */
  readonly #held = new Map<string, Demand<T>[]>();

  constructor(candidates: readonly FileCandidate<T>[], rules: ConflictRules<T>) {
    this.#rules = rules;
    this.#before = new Map(candidates.map((candidate) => [candidate.file, candidate.before]));
    this.#unchanged = new Set(rules.wasResolved ? candidates.flatMap(({ before }) => before) : []);
    const keys = new Set<string>();
    for (const { file, before, next = [] } of candidates) {
      for (const document of rules.wasResolved ? next : [...before, ...next]) {
        if (!this.#unchanged.has(document)) for (const { key } of rules.reservationsOf(document, file)) keys.add(key);
      }
    }
    this.#keys = keys;
    for (const { file, before } of candidates) {
      for (const demand of this.#demandsOf(file, before)) {
        const { key } = demand.wanted;
        const held = this.#held.get(key);
        if (held === undefined) this.#held.set(key, [demand]);
        else held.push(demand);
      }
    }
  }

  before(file: string): readonly T[] {
    return this.#before.get(file) ?? [];
  }

  /** Files that cannot be in use beside the others, with a sentence for each conflict. */
  losersIn(inUse: ReadonlyMap<string, readonly T[]>): ReadonlyMap<string, ReadonlySet<string>> {
    const groups = this.#contested(inUse);
    const losers = new Map<string, Set<string>>();
    const refuse = ({ file, document, wanted }: Demand<T>, other: Demand<T>): void => {
      const objection = wanted.objection(other.wanted);
      const sentence = `${shownDocument(document.document)}${this.#rules.prefix(document)}${objection}`;
      losers.set(file, (losers.get(file) ?? new Set()).add(sentence));
    };
    for (const { changed, index } of groups) {
      for (const demand of changed) {
        const other = index.near(demand.wanted).find(({ wanted }) => conflict(wanted, demand.wanted));
        if (other !== undefined) refuse(demand, other);
      }
    }
    for (const { changed, index } of groups) {
      for (const demand of changed) {
        for (const other of index.near(demand.wanted)) {
          if (losers.has(other.file) || this.#unchanged.has(other.document)) continue;
          if (!conflict(other.wanted, demand.wanted)) continue;
          if (this.#rank(demand, other) < this.#rank(other, demand)) {
            // A demand of a file that is refused anyway refuses no other file; each conflict of the refused file is
            // reported.
            if (!losers.has(demand.file)) refuse(other, demand);
          } else {
            refuse(demand, other);
            break;
          }
        }
        if (!losers.has(demand.file)) index.add(demand, demand.wanted);
      }
    }
    return losers;
  }

  /** The demands for each key that do not all share in the same way, in the order of the files. */
  #contested(inUse: ReadonlyMap<string, readonly T[]>): Contest<T>[] {
    const byKey = new Map<string, Demands<T>>();
    for (const [file, documents] of inUse) {
      for (const demand of this.#demandsOf(file, documents)) {
        const demands = byKey.get(demand.wanted.key) ?? { unchanged: [], changed: [] };
        demands[this.#unchanged.has(demand.document) ? "unchanged" : "changed"].push(demand);
        byKey.set(demand.wanted.key, demands);
      }
    }
    const contested = [...byKey.values()].filter(({ unchanged, changed: [first, ...others] }) => {
      if (first === undefined || others.length + unchanged.length === 0) return false;
      const { shares } = first.wanted;
      return shares === undefined || [...others, ...unchanged].some(({ wanted }) => wanted.shares !== shares);
    });
    return contested.map(({ changed, unchanged }) => {
      const index = new OverlapIndex<Demand<T>>(changed.map(wantedBy), unchanged.map(wantedBy));
      for (const demand of unchanged) index.add(demand, demand.wanted);
      return { changed, index };
    });
  }

  *#demandsOf(file: string, documents: readonly T[]): Generator<Demand<T>> {
    for (const document of documents) {
      for (const wanted of this.#rules.reservationsOf(document, file)) {
        if (this.#keys.has(wanted.key)) yield { file, document, wanted };
      }
    }
  }

  /**
   * The lower rank wins: 0 if this file had before what the other one wants, 1 if a document of this name had it in
   * another file, from which it has moved, and 2 otherwise.
   */
  #rank({ file, document, wanted }: Demand<T>, other: Demand<T>): number {
    let rank = 2;
    for (const held of this.#held.get(wanted.key) ?? []) {
      if (!conflict(held.wanted, other.wanted)) continue;
      if (held.file === file) return 0;
      if (held.document.name === document.name) rank = 1;
    }
    return rank;
  }
}
