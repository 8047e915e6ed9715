import type { Contender, Surroundings } from "./contenders.ts";
import type { Culvert } from "./culvert.ts";
import type { Product } from "./products/product.ts";
import type { Settings } from "./settings.ts";

/** The context of every measure. */
export interface Bench {
  readonly settings: Settings;
  readonly around: Surroundings;
  /** Undefined with `--floors-only`. */
  readonly culvert: Culvert | undefined;
  /** The build that `--against` names. */
  readonly before: Culvert | undefined;
  readonly floors: Readonly<Record<"pipe" | "corked" | "proxy" | "direct", Contender>>;
  /** Products that the groups of `--peers` start by themselves: culvert, its build before, and the peers. */
  readonly products: readonly Product[];
  say(progress: string): void;
}

/**
 * The builds of culvert that take part, and the named floors, in this order. The builds swap their places from round to
 * round, since whoever comes first meets what the sample before has left behind.
 */
export function contenders(bench: Bench, round: number, ...floors: (keyof Bench["floors"])[]): Contender[] {
  const builds = round % 2 === 0 ? [bench.culvert, bench.before] : [bench.before, bench.culvert];
  const named = floors.map((name) => bench.floors[name]);
  return [...builds, ...named].filter((each) => each !== undefined);
}

/**
 * The list from another place on in each round, since whoever comes first meets what the sample before has left behind.
 */
export function rotated<T>(list: readonly T[], round: number): T[] {
  const first = round % Math.max(1, list.length);
  return [...list.slice(first), ...list.slice(0, first)];
}
