import { formatWay, type Way } from "./proxy-route.ts";

/** How long a way that failed stays behind the others: as long as a browser leaves a bad proxy alone. */
const AVOIDED_MS = 5 * 60_000;

/** Which ways led to one destination, and which did not. */
export class WayMemory {
  readonly #now: () => number;
  #worked: string | undefined;
  /** When, of those that failed lately. */
  readonly #failed = new Map<string, number>();
  /** Which were cut short for the sake of others, and none of these worked. */
  readonly #cutShort = new Set<string>();

  constructor(now: () => number) {
    this.#now = now;
  }

  /** First the one that worked last, last those that failed lately, of these the one that failed longest ago first. */
  order(ways: readonly Way[]): readonly Way[] {
    for (const [name, at] of this.#failed) if (this.#now() - at >= AVOIDED_MS) this.#failed.delete(name);
    return ways.toSorted((one, other) => this.#rank(one) - this.#rank(other));
  }

  worked(way: Way): void {
    this.#worked = formatWay(way);
    this.#failed.delete(this.#worked);
    this.#cutShort.clear();
  }

  failed(way: Way): void {
    const name = formatWay(way);
    if (this.#worked === name) this.#worked = undefined;
    this.#failed.set(name, this.#now());
    this.#cutShort.delete(name);
  }

  /** It failed only because others were to have their turn: the next time is all its own. */
  cutShort(way: Way): void {
    this.failed(way);
    this.#cutShort.add(formatWay(way));
  }

  wasCutShort(way: Way): boolean {
    return this.#cutShort.has(formatWay(way));
  }

  /** The higher the later; times begin at 0. */
  #rank(way: Way): number {
    const name = formatWay(way);
    return name === this.#worked ? -2 : (this.#failed.get(name) ?? -1);
  }
}
