import type { ContenderName } from "./contenders.ts";
import { median } from "./stats.ts";

/** One line of the table: a measure, what each contender did, and what culvert has to reach. */
export interface Row {
  readonly group: string;
  readonly label: string;
  readonly unit: string;
  readonly figures: Partial<Record<ContenderName, number>>;
  readonly goals: readonly Goal[];
}

export interface Goal {
  /** As printed: `0.93 ≥ 0.85 × corked`. */
  readonly text: string;
  /** Undefined: culvert or the floor was not measured. */
  readonly met: boolean | undefined;
}

/** Samples of several rounds by contender, and their medians. */
export class Rounds {
  readonly #samples = new Map<string, number[]>();

  add(contender: ContenderName, figure: string, value: number): void {
    const key = `${contender} ${figure}`;
    const values = this.#samples.get(key) ?? [];
    values.push(value);
    this.#samples.set(key, values);
  }

  /** The median of each contender that has the figure. */
  medians(figure: string): Partial<Record<ContenderName, number>> {
    const found: Partial<Record<ContenderName, number>> = {};
    for (const [key, values] of this.#samples) {
      const [contender = "", ...rest] = key.split(" ");
      if (rest.join(" ") === figure) found[contender as ContenderName] = median(values);
    }
    return found;
  }
}

type Figures = Row["figures"];

/** culvert ≥ factor × floor. */
export function atLeast(figures: Figures, factor: number, floor: ContenderName): Goal {
  return ratioGoal(figures, factor, floor, "≥");
}

/** culvert ≤ factor × floor. */
export function atMost(figures: Figures, factor: number, floor: ContenderName): Goal {
  return ratioGoal(figures, factor, floor, "≤");
}

function ratioGoal(figures: Figures, factor: number, floor: ContenderName, relation: "≥" | "≤"): Goal {
  const ratio = (figures.culvert ?? Number.NaN) / (figures[floor] ?? Number.NaN);
  const text = `${Number.isNaN(ratio) ? "?" : ratio.toFixed(2)} ${relation} ${factor}× ${floor}`;
  if (Number.isNaN(ratio)) return { text, met: undefined };
  return { text, met: relation === "≥" ? ratio >= factor : ratio <= factor };
}

/** The goals against Konnectivity, where it was measured. */
export function withPeer(figures: Figures, goal: (peer: ContenderName) => Goal): Goal[] {
  return figures.konnectivity === undefined ? [] : [goal("konnectivity")];
}

/** No row may be worse than before by more than this. */
const WORSE_AT_MOST = 0.05;
const MORE_IS_BETTER = new Set(["MB/s", "/s", "%"]);

/** The row with a goal that compares culvert with its build before. */
export function comparedWithBefore(row: Row): Row {
  const { figures, unit } = row;
  if (figures.before === undefined) return row;
  const goal = MORE_IS_BETTER.has(unit)
    ? atLeast(figures, 1 - WORSE_AT_MOST, "before")
    : atMost(figures, 1 + WORSE_AT_MOST, "before");
  return { ...row, goals: [...row.goals, goal] };
}

/** The row with what the build before reached in the same measure. */
export function withFigureBefore(row: Row, rowsBefore: readonly Row[]): Row {
  const before = rowsBefore.find(({ label }) => label === row.label)?.figures.culvert;
  return before === undefined ? row : { ...row, figures: { ...row.figures, before } };
}

/** culvert ≤ an absolute limit. */
export function below(figures: Figures, limit: number, unit: string): Goal {
  const value = figures.culvert ?? Number.NaN;
  return { text: `≤ ${shortNumber(limit)} ${unit}`, met: Number.isNaN(value) ? undefined : value <= limit };
}

/** culvert ≥ an absolute limit. */
export function above(figures: Figures, limit: number, unit: string): Goal {
  const value = figures.culvert ?? Number.NaN;
  return { text: `≥ ${shortNumber(limit)} ${unit}`, met: Number.isNaN(value) ? undefined : value >= limit };
}

export function shortNumber(value: number): string {
  if (!Number.isFinite(value)) return "?";
  if (value === 0) return "0";
  const digits = Math.abs(value) >= 100 ? 0 : Math.abs(value) >= 10 ? 1 : Math.abs(value) >= 1 ? 2 : 3;
  return value.toFixed(digits);
}
