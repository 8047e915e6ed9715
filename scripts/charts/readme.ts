import { ChartError, type Value } from "./values-file.ts";

const BEGIN = "<!-- values:begin -->";
const END = "<!-- values:end -->";

/** The README with its tables of values written anew between the markers. */
export function withValueTables(readme: string, file: string, values: readonly Value[]): string {
  const begin = readme.indexOf(BEGIN);
  const end = readme.indexOf(END);
  if (begin < 0 || end < begin) throw new ChartError(`${file} needs a line ${BEGIN} and, below it, a line ${END}.`);
  return `${readme.slice(0, begin)}${BEGIN}\n${valueTables(values)}${readme.slice(end)}`;
}

/** A table for each `@section`; in it a row for each value that can be set, in the order of values.yaml. */
export function valueTables(values: readonly Value[]): string {
  const parts: string[] = [];
  for (const value of values) {
    if (value.section !== undefined) parts.push("", `### ${value.section}`);
    if (value.section !== undefined || parts.length === 0)
      parts.push("", "| value | default | what it does |", "| --- | --- | --- |");
    parts.push(...rowsOf(value));
  }
  return `${parts.join("\n")}\n\n`;
}

function rowsOf(value: Value): string[] {
  const { path, description, children } = value;
  if (children.length === 0) return [row(path, `\`${JSON.stringify(value.default)}\``, description)];
  return [...(description === "" ? [] : [row(path, "", description)]), ...children.flatMap(rowsOf)];
}

function row(path: string, fallback: string, description: string): string {
  return `| ${[`\`${path}\``, fallback, description].map((cell) => cell.replaceAll("|", "\\|")).join(" | ")} |`;
}
