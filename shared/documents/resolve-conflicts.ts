import { getOrMake } from "../basics/collections.ts";
import { shownDocument } from "./yaml.ts";

/** A document of a folder, as far as conflicts need it. */
interface NamedDocument {
  readonly name: string;
  /** Number of the document in a file of several documents. */
  readonly document?: number;
}

/** Something that a document has alone, such as a name or a socket: no other document may have the same key. */
export interface Reservation {
  readonly key: string;
  /** Documents that share a key in the same way may all have it, like the readers of a lock. */
  readonly shares?: string | undefined;
  /** The reservation in sentences, such as `agents.sni "blue.example"`. */
  readonly what: string;
  /** The advice for a conflict. */
  readonly cure: string;
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

/**
 * Decides which files can be in use together. The file is the unit: one that conflicts with another keeps its last
 * version. Documents in use keep their reservations until their file gives them up; of two files that want something
 * new, the first one gets it. `kind` is the word for a document in sentences, such as `cluster`.
 *
 * Documents in use can conflict only if other things have changed what they reserve. They stay, and the file of the
 * second is a problem.
 */
export function resolveConflicts<T extends NamedDocument>(
  candidates: readonly FileCandidate<T>[],
  kind: string,
  reservationsOf: (document: T) => readonly Reservation[],
): Resolved<T> {
  const wanted = new Map(candidates.map(({ file, before, next = before }) => [file, next]));
  const grants = new Grants(reservationsOf);
  const conflicts = [...wanted].flatMap(([file, documents]) => grants.replace(file, documents));
  if (conflicts.length === 0) return { inUse: wanted, problems: [] };

  const inUse = new Map(candidates.map(({ file, before }) => [file, before]));
  for (const [file, documents] of inUse) grants.replace(file, documents);
  for (;;) {
    const problems: DocumentProblem[] = [];
    let isSettled = true;
    for (const [file, documents] of wanted) {
      const current = inUse.get(file) ?? [];
      const isNew = documents !== current;
      const conflicts = grants.replace(file, documents).filter(([, other]) => isNew || other.file <= file);
      const sentences = new Set(conflicts.map(([claim, other]) => sentenceOf(kind, claim, other)));
      for (const sentence of sentences) problems.push({ file, sentence });
      if (conflicts.length > 0) grants.replace(file, current);
      else if (isNew) {
        inUse.set(file, documents);
        isSettled = false;
      }
    }
    if (isSettled) return { inUse, problems };
  }
}

function sentenceOf<T extends NamedDocument>(
  kind: string,
  { document, reservation }: Claim<T>,
  other: Claim<T>,
): string {
  const { what, cure } = reservation;
  const state = what === other.reservation.what ? "is taken by" : `overlaps ${other.reservation.what} of`;
  const number = other.document.document;
  const place = number === undefined ? other.file : `${other.file}, document ${number}`;
  const begin = `${shownDocument(document.document)}${kind} "${document.name}"`;
  return `${begin}: ${what} ${state} ${kind} "${other.document.name}" (${place}): ${cure}.`;
}

/** A reservation that a document of a file wants. */
interface Claim<T> {
  readonly file: string;
  readonly document: T;
  readonly reservation: Reservation;
}

/** The claims of all files. */
class Grants<T> {
  readonly #reservationsOf: (document: T) => readonly Reservation[];
  readonly #byDocument = new Map<T, readonly Claim<T>[]>();
  readonly #byFile = new Map<string, readonly Claim<T>[]>();
  /** By key and way of sharing: a thousand documents that share a key in one way are not compared with each other. */
  readonly #byKey = new Map<string, Map<string | undefined, Set<Claim<T>>>>();

  constructor(reservationsOf: (document: T) => readonly Reservation[]) {
    this.#reservationsOf = reservationsOf;
  }

  /**
   * Grants a file what these documents want, in place of all that it had. Returns the claims that conflict, each with
   * one that is in its way.
   */
  replace(file: string, documents: readonly T[]): (readonly [claim: Claim<T>, other: Claim<T>])[] {
    for (const claim of this.#byFile.get(file) ?? []) this.#alike(claim).delete(claim);
    const claims = documents.flatMap((document) => this.#claimsOf(file, document));
    this.#byFile.set(file, claims);
    return claims.flatMap((claim) => {
      const other = this.#obstacleTo(claim);
      this.#alike(claim).add(claim);
      return other === undefined ? [] : [[claim, other] as const];
    });
  }

  #claimsOf(file: string, document: T): readonly Claim<T>[] {
    return getOrMake(this.#byDocument, document, () =>
      this.#reservationsOf(document).map((reservation) => ({ file, document, reservation })),
    );
  }

  /** The claims for the same key that share it in the same way. */
  #alike({ reservation: { key, shares } }: Claim<T>): Set<Claim<T>> {
    const ways = getOrMake(this.#byKey, key, () => new Map<string | undefined, Set<Claim<T>>>());
    return getOrMake(ways, shares, () => new Set());
  }

  #obstacleTo({ document, reservation: { key, shares } }: Claim<T>): Claim<T> | undefined {
    for (const [way, claims] of this.#byKey.get(key) ?? []) {
      if (way !== undefined && way === shares) continue;
      for (const claim of claims) if (claim.document !== document) return claim;
    }
    return undefined;
  }
}
