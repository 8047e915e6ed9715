import { type Comparison, majorOf, section } from "../e2e/bench/page.ts";

/** docs/figures.json: what was measured, and the figures that pages quote. */
export interface Figures {
  readonly comparison: readonly Comparison[];
  readonly measured: readonly { readonly figures: Readonly<Record<string, string>> }[];
  readonly quotes: Readonly<Record<string, Quote>>;
}

/** A figure out of rows of the comparison: its least and greatest value on Node.js, or on one major version of it. */
interface Quote {
  readonly from: readonly string[];
  /** `times`: culvert's figure divided by Konnectivity's. */
  readonly of: "culvert" | "konnectivity" | "times";
  readonly node?: number;
  readonly digits: number;
}

const QUOTED = /<!--=([\w-]+)-->[\s\S]*?<!--\/-->/g;
const TABLES = /(<!-- figures:begin .*?-->)[\s\S]*?(<!-- figures:end -->)/g;

/** The text of each figure that a page can quote, by its name. */
export function quotable({ comparison, measured, quotes }: Figures): Map<string, string> {
  const texts = new Map(measured.flatMap(({ figures }) => Object.entries(figures)));
  for (const [name, quote] of Object.entries(quotes)) texts.set(name, quoteText(quote, comparison));
  return texts;
}

/**
 * The page with each `<!--=name-->…<!--/-->` filled with the figure of this name, and with the tables of the
 * comparison between `figures:begin` and `figures:end`.
 *
 * @throws Error for a name that has no figure
 */
export function withFigures(page: string, texts: ReadonlyMap<string, string>, runs: readonly Comparison[]): string {
  const tables = runs.map(section).join("\n\n");
  return page
    .replace(QUOTED, (_, name: string) => {
      const text = texts.get(name);
      if (text === undefined) throw new Error(`docs/figures.json has no figure ${name}`);
      return `<!--=${name}-->${text}<!--/-->`;
    })
    .replace(TABLES, (_, begin: string, end: string) => `${begin}\n\n${tables}\n\n${end}`);
}

function quoteText({ from, of, node, digits }: Quote, runs: readonly Comparison[]): string {
  const chosen = runs.filter((run) => (node === undefined ? majorOf(run) > 0 : majorOf(run) === node));
  const values = chosen.flatMap((run) => from.map((label) => figureIn(run, label, of)));
  if (values.length === 0) throw new Error(`no run of the comparison has Node.js ${node}`);
  const [least, most] = [Math.min(...values), Math.max(...values)].map((value) => value.toFixed(digits));
  return least === most ? `${least}` : `${least} to ${most}`;
}

function figureIn({ rows }: Comparison, label: string, of: Quote["of"]): number {
  const { culvert, konnectivity } = rows.find((row) => row.label === label)?.figures ?? {};
  const value = of === "times" ? (culvert ?? Number.NaN) / (konnectivity ?? Number.NaN) : { culvert, konnectivity }[of];
  if (value === undefined || Number.isNaN(value)) throw new Error(`the comparison has no figure for "${label}"`);
  return value;
}
