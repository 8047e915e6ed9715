/**
 * How the values of a claim begin and end, by a name such as `CN begins`. An end is written backwards,
 * and a missing text is the empty one. Two outlines overlap only if for each name one text is a prefix of the other.
 */
export type Outline = ReadonlyMap<string, string>;

/** Adds how every value that matches a pattern begins and ends. `pieces`: the pattern, split at its stars. */
export function outline(into: Map<string, string>, name: string, pieces: readonly string[]): Map<string, string> {
  const end = pieces.at(-1) ?? "";
  return into.set(`${name} begins`, pieces[0] ?? "").set(`${name} ends`, end.split("").reverse().join(""));
}

export interface Outlined {
  /** Everything claimed has at least one of these outlines; `undefined`: anything may be claimed. */
  outlines(): readonly Outline[] | undefined;
}

/** With fewer lookups than this, an index costs more than it saves. */
const MANY = 16;
const ANYTHING: readonly Outline[] = [new Map()];

/** The texts by which the claims of one key differ: of all names, those of the name with the most different texts. */
export class OverlapTexts {
  readonly #name: string | undefined;
  readonly #sorted: readonly string[];
  readonly #lengths: readonly number[];
  readonly #known: ReadonlySet<string>;

  /** `asking`: the claims for which others are looked up; `others`: further claims in the index. */
  constructor(asking: readonly Outlined[], others: readonly Outlined[]) {
    const texts = new Map<string, Set<string>>();
    if (asking.length >= MANY) {
      for (const outline of [...asking, ...others].flatMap(outlinesOf)) {
        for (const [name, text] of outline) texts.set(name, (texts.get(name) ?? new Set([""])).add(text));
      }
    }
    const [best] = [...texts].sort(([, one], [, other]) => other.size - one.size);
    this.#name = best?.[0];
    this.#known = best?.[1] ?? new Set([""]);
    this.#sorted = [...this.#known].sort();
    this.#lengths = [...new Set(this.#sorted.map(({ length }) => length))].sort((one, other) => one - other);
  }

  /** The texts of this claim. */
  of(claim: Outlined): ReadonlySet<string> {
    const name = this.#name;
    return new Set(name === undefined ? [""] : outlinesOf(claim).map((outline) => outline.get(name) ?? ""));
  }

  /** The texts that are a prefix of a text of this claim, and those that begin with one. */
  near(claim: Outlined): ReadonlySet<string> {
    const near = new Set<string>();
    for (const text of this.of(claim)) {
      for (const length of this.#lengths) {
        if (length > text.length) break;
        const prefix = text.slice(0, length);
        if (this.#known.has(prefix)) near.add(prefix);
      }
      for (let at = this.#firstFrom(text); this.#sorted[at]?.startsWith(text); at++) near.add(this.#sorted[at] ?? "");
    }
    return near;
  }

  #firstFrom(text: string): number {
    let [low, high] = [0, this.#sorted.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if ((this.#sorted[middle] ?? "") < text) low = middle + 1;
      else high = middle;
    }
    return low;
  }
}

function outlinesOf(claim: Outlined): readonly Outline[] {
  return claim.outlines() ?? ANYTHING;
}

/** Finds the claims that may overlap with a given one, so that thousands are not compared pair by pair. */
export class OverlapIndex<T> {
  readonly #texts: OverlapTexts;
  readonly #byText = new Map<string, T[]>();
  readonly #order = new Map<T, number>();

  /** `texts`: made of all claims that will be added. */
  constructor(texts: OverlapTexts) {
    this.#texts = texts;
  }

  add(item: T, claim: Outlined): void {
    this.#order.set(item, this.#order.size);
    for (const text of this.#texts.of(claim)) {
      const items = this.#byText.get(text);
      if (items === undefined) this.#byText.set(text, [item]);
      else items.push(item);
    }
  }

  /** In the order in which they were added. The next `add` may change the array. */
  near(claim: Outlined): readonly T[] {
    const lists = [...this.#texts.near(claim)]
      .map((text) => this.#byText.get(text))
      .filter((list) => list !== undefined);
    const [only, another] = lists;
    if (another === undefined) return only ?? [];
    const order = (item: T): number => this.#order.get(item) ?? 0;
    return [...new Set(lists.flat())].sort((one, other) => order(one) - order(other));
  }
}
