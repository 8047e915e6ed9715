import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { ROOT } from "../../shared/runtime/testing/project.ts";
import type { ContenderName } from "./contenders.ts";
import { HEADINGS } from "./report.ts";
import type { Circumstances } from "./results.ts";
import { type Row, shortNumber } from "./rows.ts";
import type { Settings } from "./settings.ts";

/** The measured figures that pages quote; docs/figures.json says at its top how it is read. */
export const FIGURES_FILE = join(ROOT, "docs/figures.json");

/** One run of the comparison, as docs/figures.json keeps it. */
export interface Comparison extends Circumstances {
  readonly settings: Pick<Settings, "rounds" | "seconds">;
  readonly rows: readonly Pick<Row, "label" | "unit" | "figures">[];
}

/**
 * Each column with those it takes its figure from, the first that has one: what Node alone does is measured in three
 * ways.
 */
const COLUMNS: readonly (readonly [heading: string, ...from: ContenderName[]])[] = [
  [HEADINGS.culvert, "culvert"],
  [HEADINGS.konnectivity, "konnectivity"],
  [HEADINGS.quietKonnectivity, "quietKonnectivity"],
  [HEADINGS.frp, "frp"],
  ["Node alone", "bare", "corked"],
];

/** Puts this run into docs/figures.json, for the earlier one with the same major version of Node.js, or on Bun. */
export function keepComparison(rows: readonly Row[], settings: Settings, about: Circumstances): void {
  const file = JSON.parse(readFileSync(FIGURES_FILE, "utf8")) as { comparison: readonly Comparison[] };
  const { rounds, seconds } = settings;
  const run = {
    ...about,
    settings: { rounds, seconds },
    rows: rows.map(({ label, unit, figures }) => ({ label, unit, figures: rounded(figures) })),
  };
  writeFileSync(FIGURES_FILE, figuresText({ ...file, comparison: withComparison(file.comparison, run) }));
}

/** The runs with this one; the newest Node.js comes first, and Bun last. */
export function withComparison(runs: readonly Comparison[], added: Comparison): Comparison[] {
  const others = runs.filter((run) => majorOf(run) !== majorOf(added));
  return [added, ...others].sort((a, b) => majorOf(b) - majorOf(a));
}

/** The major version of the Node.js on which culvert ran; 0 for Bun. */
export function majorOf({ runtime }: Pick<Circumstances, "runtime">): number {
  return Number(/^v(\d+)/.exec(runtime)?.[1] ?? 0);
}

/** The file as JSON in which each row of a table has one line. */
export function figuresText(file: object): string {
  const lines = new Map<string, string>();
  const text = JSON.stringify(
    file,
    (_, value: unknown) => {
      if (typeof value !== "object" || value === null || !isRow(value)) return value;
      lines.set(`@${lines.size}@`, JSON.stringify(value));
      return `@${lines.size - 1}@`;
    },
    2,
  );
  return `${text.replaceAll(/"(@\d+@)"/g, (_, key: string) => lines.get(key) ?? key)}\n`;
}

function isRow(value: object): boolean {
  return ["label", "from", "version"].some((key) => key in value);
}

function rounded(figures: Row["figures"]): Row["figures"] {
  return Object.fromEntries(Object.entries(figures).map(([name, value]) => [name, Number(value.toPrecision(4))]));
}

/** Machine, date and programs of a run, and the table under them. */
export function section(run: Comparison): string {
  const lines = run.rows.map((row) => [
    row.label,
    row.unit,
    ...COLUMNS.map(([, ...from]) => cell(row.figures, from)),
    ratio(row.figures),
  ]);
  const head = ["", "unit", ...COLUMNS.map(([heading]) => heading), "culvert ÷ Konnectivity"];
  const rule = head.map((_, column) => (column < 2 ? "---" : "--:"));
  return [
    `### ${majorOf(run) === 0 ? "Bun" : `Node.js ${majorOf(run)}`}`,
    "",
    sentence(run),
    "",
    ...[head, rule, ...lines].map((cells) => `| ${cells.join(" | ")} |`),
  ].join("\n");
}

function cell(figures: Row["figures"], from: readonly ContenderName[]): string {
  const value = from.map((name) => figures[name]).find((each) => each !== undefined);
  return value === undefined ? "" : shortNumber(value);
}

function ratio({ culvert, konnectivity }: Row["figures"]): string {
  return culvert === undefined || konnectivity === undefined ? "" : (culvert / konnectivity).toFixed(2);
}

function sentence({ settings: { rounds, seconds }, ...about }: Comparison): string {
  const { cores, cpu, memoryGiB, kernel, node, openssl, load, commit, modified, peers, runtime } = about;
  const programs = peers
    .filter(({ name }) => name !== "quietKonnectivity")
    .map(({ name, version }) => `${HEADINGS[name]}: ${version}`);
  const facts = [
    about.at.slice(0, 10),
    `${cores} × ${cpu}, ${memoryGiB} GiB`,
    `Linux ${kernel}`,
    `Node.js ${node} with OpenSSL ${openssl}`,
    `load average before the run ${load.toFixed(1)}`,
    rounds === 1 ? `one round of ${seconds} s` : `medians of ${rounds} rounds of ${seconds} s`,
    `culvert: ${commit}${modified ? " and changes" : ""}${runtime === node ? "" : `, on ${runtime}`}`,
    ...programs,
  ];
  return `${facts.join(";\n")}.`;
}
