import { cellOf, notesOf } from "../cells.ts";
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
  let notes: [string, string][] = [];
  for (const value of values) {
    const begins = value.section !== undefined || parts.length === 0;
    if (begins) {
      parts.push(...notesOf(notes));
      notes = [];
    }
    if (value.section !== undefined) parts.push("", `### ${value.section}`);
    if (begins) parts.push("", "| value | default | what it does |", "| --- | --- | --- |");
    for (const { path, fallback, description } of rowsOf(value)) {
      const { cell, rest } = cellOf(description);
      notes.push([path, rest]);
      parts.push(`| ${[`\`${path}\``, fallback, cell].map((text) => text.replaceAll("|", "\\|")).join(" | ")} |`);
    }
  }
  parts.push(...notesOf(notes));
  return `${parts.join("\n")}\n\n`;
}

interface Row {
  readonly path: string;
  readonly fallback: string;
  readonly description: string;
}

function rowsOf({ path, description, children, default: value }: Value): Row[] {
  if (children.length === 0) return [{ path, fallback: `\`${JSON.stringify(value)}\``, description }];
  return [...(description === "" ? [] : [{ path, fallback: "", description }]), ...children.flatMap(rowsOf)];
}
