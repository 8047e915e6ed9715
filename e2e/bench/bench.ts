import type { Contender, Surroundings } from "./contenders.ts";
import type { Culvert } from "./culvert.ts";
import type { Settings } from "./settings.ts";

/** What every measure gets. */
export interface Bench {
  readonly settings: Settings;
  readonly around: Surroundings;
  /** Undefined with `--floors-only`. */
  readonly culvert: Culvert | undefined;
  /** The build that `--against` names. */
  readonly before: Culvert | undefined;
  readonly floors: Readonly<Record<"pipe" | "corked" | "proxy" | "direct", Contender>>;
  say(progress: string): void;
}

/** The builds of culvert that take part, and the named floors, in this order. */
export function contenders(bench: Bench, ...floors: (keyof Bench["floors"])[]): Contender[] {
  const named = floors.map((name) => bench.floors[name]);
  return [bench.culvert, bench.before, ...named].filter((each) => each !== undefined);
}
