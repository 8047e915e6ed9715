import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { ROOT } from "../../shared/runtime/testing/project.ts";
import type { ContenderName } from "./contenders.ts";
import { HEADINGS } from "./report.ts";
import type { Circumstances } from "./results.ts";
import { type Row, shortNumber } from "./rows.ts";
import type { Settings } from "./settings.ts";

const FILE = join(ROOT, "docs/performance.md");
const BEGIN = "<!-- figures:begin (npm run bench -- --peers DIR --page) -->";
const END = "<!-- figures:end -->";

const HEADING = "### Node.js ";

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

/** Puts the figures of this run into the page, in place of the earlier ones with the same major version of Node.js. */
export function writePage(rows: readonly Row[], settings: Settings, about: Circumstances): void {
  writeFileSync(FILE, withSection(readFileSync(FILE, "utf8"), section(rows, settings, about)));
}

/** The page with this section; the newest Node.js comes first. */
export function withSection(page: string, added: string): string {
  const [begin, end] = [page.indexOf(BEGIN), page.indexOf(END)];
  if (begin < 0 || end < begin) throw new Error(`the page has no place for figures: ${BEGIN} … ${END}`);
  const there = page.slice(begin + BEGIN.length, end).split(new RegExp(`^(?=${HEADING})`, "m"));
  const others = there.filter((each) => each.startsWith(HEADING) && titleOf(each) !== titleOf(added));
  const sections = [added, ...others.map((each) => each.trim())].sort((a, b) =>
    titleOf(b).localeCompare(titleOf(a), "en", { numeric: true }),
  );
  return `${page.slice(0, begin + BEGIN.length)}\n\n${sections.join("\n\n")}\n\n${page.slice(end)}`;
}

function titleOf(text: string): string {
  return text.split("\n", 1)[0] ?? "";
}

/** Machine, date and programs, and the table under them. */
export function section(rows: readonly Row[], settings: Settings, about: Circumstances): string {
  const lines = rows.map((row) => [
    row.label,
    row.unit,
    ...COLUMNS.map(([, ...from]) => cell(row, from)),
    ratio(row.figures),
  ]);
  const head = ["", "unit", ...COLUMNS.map(([heading]) => heading), "culvert ÷ Konnectivity"];
  const rule = head.map((_, column) => (column < 2 ? "---" : "--:"));
  const title = `${HEADING}${about.node.replace(/^v(\d+).*/, "$1")}`;
  return [
    title,
    "",
    sentence(settings, about),
    "",
    ...[head, rule, ...lines].map((cells) => `| ${cells.join(" | ")} |`),
  ].join("\n");
}

function cell({ figures }: Row, from: readonly ContenderName[]): string {
  const value = from.map((name) => figures[name]).find((each) => each !== undefined);
  return value === undefined ? "" : shortNumber(value);
}

function ratio({ culvert, konnectivity }: Row["figures"]): string {
  return culvert === undefined || konnectivity === undefined ? "" : (culvert / konnectivity).toFixed(2);
}

function sentence({ rounds, seconds }: Settings, about: Circumstances): string {
  const { cores, cpu, memoryGiB, kernel, node, openssl, load, commit, modified, peers } = about;
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
    `culvert: ${commit}${modified ? " and changes" : ""}`,
    ...programs,
  ];
  return `${facts.join(";\n")}.`;
}
