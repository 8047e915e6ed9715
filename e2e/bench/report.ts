import { ON_BUN } from "../harness/processes.ts";
import type { ContenderName } from "./contenders.ts";
import { type Goal, type Row, shortNumber } from "./rows.ts";

const ALL_COLUMNS = [
  "culvert",
  "before",
  "without",
  "konnectivity",
  "quietKonnectivity",
  "frp",
  "pipe",
  "corked",
  "bare",
  "proxy",
  "direct",
] as const satisfies readonly ContenderName[];

export const HEADINGS: Record<ContenderName, string> = {
  culvert: ON_BUN ? "culvert on Bun" : "culvert",
  before: "before",
  without: "without",
  konnectivity: "Konnectivity",
  quietKonnectivity: "Konnectivity -v=0",
  frp: "frp",
  pipe: "raw pipe",
  corked: "raw corked",
  bare: "bare Node",
  proxy: "node proxy",
  direct: "load alone",
};

/** The table on screen: one line a measure, with its goals behind it. */
export function table(rows: readonly Row[]): string {
  const columns = ALL_COLUMNS.filter((name) => rows.some(({ figures }) => figures[name] !== undefined));
  const cells = rows.map((row) => [
    row.label,
    row.unit,
    ...columns.map((name) => (row.figures[name] === undefined ? "" : shortNumber(row.figures[name]))),
    row.goals.map(goalText).join("   "),
  ]);
  const head = ["", "", ...columns.map((name) => HEADINGS[name]), "goals (culvert ÷ floor)"];
  const widths = head.map((text, i) => Math.max(text.length, ...cells.map((line) => line[i]?.length ?? 0)));
  const lines: string[] = [line(head, widths)];
  let group = "";
  for (const [i, row] of rows.entries()) {
    if (row.group !== group) lines.push(`── ${row.group} ${"─".repeat(20)}`);
    group = row.group;
    lines.push(line(cells[i] ?? [], widths));
  }
  return lines.join("\n");
}

function goalText({ text, met }: Goal): string {
  return `${met === undefined ? "·" : met ? "✓" : "✗"} ${text}`;
}

function line(cells: readonly string[], widths: readonly number[]): string {
  const last = cells.length - 1;
  return cells
    .map((cell, i) =>
      i <= 1 || i === last ? cell.padEnd(i === last ? 0 : (widths[i] ?? 0)) : cell.padStart(widths[i] ?? 0),
    )
    .join("  ");
}
