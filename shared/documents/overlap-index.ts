/**
 * How reserved values begin and end, by a name such as `CN begins`. The text of an end is reversed, and a missing text
 * is empty. Two outlines overlap only if for each name one text is a prefix of the other.
 */
export type Outline = ReadonlyMap<string, string>;

/** Adds how all values that match a pattern begin and end. `pieces` is the pattern, split at its stars. */
export function outline(into: Map<string, string>, name: string, pieces: readonly string[]): Map<string, string> {
  const end = pieces.at(-1) ?? "";
  return into.set(`${name} begins`, pieces[0] ?? "").set(`${name} ends`, end.split("").reverse().join(""));
}

export interface Outlined {
  /** Every reserved value has one of these outlines; `undefined` if it may have any. */
  outlines(): readonly Outline[] | undefined;
}

/** Number of lookups from which on an index saves more than it costs. */
const MANY = 16;
const ANYTHING: readonly Outline[] = [new Map()];

/** The texts by which the reservations of one key are indexed: those of the name that has the most different texts. */
export class OverlapTexts {
  readonly #name: string | undefined;
  readonly #sorted: readonly string[];
  readonly #lengths: readonly number[];
  readonly #known: ReadonlySet<string>;

  /** `asking` are the reservations for which others are looked up; `others` are further ones in the index. */
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

  /** The texts of this reservation. */
  of(reserved: Outlined): ReadonlySet<string> {
    const name = this.#name;
    return new Set(name === undefined ? [""] : outlinesOf(reserved).map((outline) => outline.get(name) ?? ""));
  }

  /** The texts that are a prefix of a text of this reservation, and those that begin with one. */
  near(reserved: Outlined): ReadonlySet<string> {
    const near = new Set<string>();
    for (const text of this.of(reserved)) {
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

function outlinesOf(reserved: Outlined): readonly Outline[] {
  return reserved.outlines() ?? ANYTHING;
}

/** Finds the reservations that may overlap with a given one, so that thousands are not compared pair by pair. */
export class OverlapIndex<T> {
  readonly #texts: OverlapTexts;
  readonly #byText = new Map<string, T[]>();
  readonly #order = new Map<T, number>();

  /** `texts` is made from all reservations that will be added. */
  constructor(texts: OverlapTexts) {
    this.#texts = texts;
  }

  add(item: T, reserved: Outlined): void {
    this.#order.set(item, this.#order.size);
    for (const text of this.#texts.of(reserved)) {
      const items = this.#byText.get(text);
      if (items === undefined) this.#byText.set(text, [item]);
      else items.push(item);
    }
  }

  /** Returns them in the order in which they were added. The next `add` may change the array. */
  near(reserved: Outlined): readonly T[] {
    const lists = [...this.#texts.near(reserved)]
      .map((text) => this.#byText.get(text))
      .filter((list) => list !== undefined);
    const [only, another] = lists;
    if (another === undefined) return only ?? [];
    const order = (item: T): number => this.#order.get(item) ?? 0;
    return [...new Set(lists.flat())].sort((one, other) => order(one) - order(other));
  }
}
