/** Numbers that follow from a seed, so that a run can be repeated (xorshift32). */
export class Random {
  #state: number;

  constructor(seed: number) {
    this.#state = seed >>> 0 || 1;
  }

  #next(): number {
    let state = this.#state;
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    this.#state = state >>> 0;
    return this.#state;
  }

  /** From 0 to below `end`. */
  below(end: number): number {
    return this.#next() % end;
  }

  oneIn(count: number): boolean {
    return this.below(count) === 0;
  }

  /** Small numbers more often than large ones, each below `end`. */
  small(end: number): number {
    return this.below(1 + this.below(end));
  }

  pick<T>(list: readonly T[]): T {
    return list[this.below(list.length)] as T;
  }
}
