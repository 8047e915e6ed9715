import { formatRoute, type ProxyRoute } from "./proxy-route.ts";

/** How long a way that failed stays behind the others: as long as a browser leaves a bad proxy alone. */
const AVOIDED_MS = 5 * 60_000;

/** Which ways led to one destination, and which did not. */
export class RouteHistory {
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
  order(ways: readonly ProxyRoute[]): readonly ProxyRoute[] {
    for (const [name, at] of this.#failed) if (this.#now() - at >= AVOIDED_MS) this.#failed.delete(name);
    return ways.toSorted((one, other) => this.#rank(one) - this.#rank(other));
  }

  worked(way: ProxyRoute): void {
    this.#worked = formatRoute(way);
    this.#failed.delete(this.#worked);
    this.#cutShort.clear();
  }

  failed(way: ProxyRoute): void {
    const name = formatRoute(way);
    if (this.#worked === name) this.#worked = undefined;
    this.#failed.set(name, this.#now());
    this.#cutShort.delete(name);
  }

  /** It failed only because others were to have their turn: the next time is all its own. */
  cutShort(way: ProxyRoute): void {
    this.failed(way);
    this.#cutShort.add(formatRoute(way));
  }

  wasCutShort(way: ProxyRoute): boolean {
    return this.#cutShort.has(formatRoute(way));
  }

  /** The higher the later; times begin at 0. */
  #rank(way: ProxyRoute): number {
    const name = formatRoute(way);
    return name === this.#worked ? -2 : (this.#failed.get(name) ?? -1);
  }
}
