import { envName, type ForeignFlag, flagName, type OptionTable } from "../shared/config/options.ts";
import { cellOf, notesOf } from "./cells.ts";

/** The section of docs/options.md that describes one table. */
export function optionsMarkdown(table: OptionTable): string {
  const parts: string[] = [`## \`culvert ${table.command}\``, "", table.summary, ""];
  let section: string | undefined;
  let notes: [string, string][] = [];
  for (const [key, row] of Object.entries(table.options)) {
    if (row.section !== section) {
      section = row.section;
      parts.push(
        `### ${section ?? "Options"}`,
        "",
        "| flag | type | default | environment | Konnectivity | what it does |",
      );
      parts.push("| --- | --- | --- | --- | --- | --- |");
    }
    const environment = [envName(table.envPrefix, key, row), row.environment].filter((name) => name !== undefined);
    const help =
      row.separator === undefined
        ? row.help
        : `${row.help} Several: repeat the flag, or separate with ${code(row.separator)}.`;
    const { cell: inCell, rest } = cellOf(help);
    notes.push([`--${flagName(key, row)}`, rest]);
    const cells = [
      code(`--${flagName(key, row)}`),
      row.limits === undefined ? row.kind : `${row.kind}, ${row.limits}`,
      row.defaultText ?? row.write(row.default).map(code).join(" "),
      environment.map(code).join(" "),
      row.konnectivity === undefined ? "" : code(row.konnectivity),
      inCell,
    ];
    parts.push(`| ${cells.map(cell).join(" | ")} |`);
    if (lastOfSection(table, key)) {
      parts.push(...notesOf(notes), "");
      notes = [];
    }
  }
  parts.push(...foreignMarkdown(table));
  return parts.join("\n");
}

function foreignMarkdown(table: OptionTable): string[] {
  if (Object.keys(table.foreign).length === 0) return [];
  const ignored: string[] = [];
  const refused: string[] = [];
  for (const [name, flag] of Object.entries(table.foreign)) {
    const line = `| ${code(`--${name}`)} | ${cell(flag.help)} |`;
    (canRefuse(flag) ? refused : ignored).push(line);
  }
  return [
    "### Konnectivity's other flags",
    "",
    "Refused where the value asks for something that culvert does not do:",
    "",
    "| flag | what culvert does |",
    "| --- | --- |",
    ...refused,
    "",
    "Accepted with one warning line that gives the reason:",
    "",
    "| flag | instead |",
    "| --- | --- |",
    ...ignored,
    "",
  ];
}

function canRefuse({ effectOf }: ForeignFlag): boolean {
  const effect = effectOf("\0");
  return effect !== "harmless" && "refused" in effect;
}

function lastOfSection(table: OptionTable, key: string): boolean {
  const rows = Object.entries(table.options);
  const index = rows.findIndex(([name]) => name === key);
  return rows[index + 1]?.[1].section !== rows[index]?.[1].section;
}

function code(text: string): string {
  return text === "" ? "" : `\`${text}\``;
}

function cell(text: string): string {
  return text.replaceAll("|", "\\|");
}
