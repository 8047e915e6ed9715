/** Randomness that can be had again: everything follows from the seed. */
export class Random {
  #state: number;

  constructor(seed: number) {
    this.#state = seed >>> 0;
  }

  /** Between 0 and 1, as Math.random (mulberry32). */
  next(): number {
    this.#state = (this.#state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(this.#state ^ (this.#state >>> 15), this.#state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  }

  /** A whole number from `from` up to and with `to`. */
  between(from: number, to: number): number {
    return from + Math.floor(this.next() * (to - from + 1));
  }

  pick<T>(choices: readonly [T, ...T[]]): T {
    return choices[this.between(0, choices.length - 1)] as T;
  }

  chance(probability: number): boolean {
    return this.next() < probability;
  }
}

/** A new seed, or the one of `CULVERT_E2E_SEED`: a failed run says which, and it can be had again. */
export function seedOfRun(): number {
  const { CULVERT_E2E_SEED } = process.env;
  return CULVERT_E2E_SEED === undefined ? Math.floor(Math.random() * 2 ** 31) : Number(CULVERT_E2E_SEED);
}

/** One of the items by chance, which cannot be had again. */
export function anyOf<T>(items: readonly T[]): T {
  const item = items[Math.floor(Math.random() * items.length)];
  if (item === undefined) throw new Error("there is no item to choose");
  return item;
}
