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
  /** Every reserved value has one of these outlines; absent or `undefined` if it may have any. */
  outlines?(): readonly Outline[] | undefined;
}

/** Number of lookups from which on an index saves more than it costs. */
const MANY = 16;
const ANYTHING: readonly Outline[] = [new Map()];

/**
 * Finds the reservations of one key that may overlap with a given one, so that thousands are not compared pair by pair:
 * by the texts of the name that has the most different texts.
 */
export class OverlapIndex<T> {
  readonly #name: string | undefined;
  readonly #sorted: readonly string[];
  readonly #lengths: readonly number[];
  readonly #byText = new Map<string, T[]>();
  readonly #order = new Map<T, number>();

  /** `asking` are the reservations for which others are looked up; `others` are further ones that will be added. */
  constructor(asking: readonly Outlined[], others: readonly Outlined[]) {
    const texts = new Map<string, Set<string>>();
    if (asking.length >= MANY) {
      for (const outline of [...asking, ...others].flatMap(outlinesOf)) {
        for (const [name, text] of outline) texts.set(name, (texts.get(name) ?? new Set([""])).add(text));
      }
    }
    const [best] = [...texts].sort(([, one], [, other]) => other.size - one.size);
    this.#name = best?.[0];
    this.#sorted = [...(best?.[1] ?? [""])].sort();
    this.#lengths = [...new Set(this.#sorted.map(({ length }) => length))].sort((one, other) => one - other);
  }

  add(item: T, reserved: Outlined): void {
    this.#order.set(item, this.#order.size);
    for (const text of this.#textsOf(reserved)) {
      const items = this.#byText.get(text);
      if (items === undefined) this.#byText.set(text, [item]);
      else items.push(item);
    }
  }

  /** Returns them in the order in which they were added. The next `add` may change the array. */
  near(reserved: Outlined): readonly T[] {
    const lists = new Set<readonly T[] | undefined>();
    for (const text of this.#textsOf(reserved)) {
      for (const length of this.#lengths) {
        if (length > text.length) break;
        lists.add(this.#byText.get(text.slice(0, length)));
      }
      for (let at = this.#firstFrom(text); this.#sorted[at]?.startsWith(text); at++) {
        lists.add(this.#byText.get(this.#sorted[at] ?? ""));
      }
    }
    const [only = [], another, ...more] = [...lists].filter((list) => list !== undefined);
    if (another === undefined) return only;
    const order = (item: T): number => this.#order.get(item) ?? 0;
    return [...new Set([only, another, ...more].flat())].sort((one, other) => order(one) - order(other));
  }

  #textsOf(reserved: Outlined): ReadonlySet<string> {
    const name = this.#name;
    return new Set(name === undefined ? [""] : outlinesOf(reserved).map((outline) => outline.get(name) ?? ""));
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
  return reserved.outlines?.() ?? ANYTHING;
}
