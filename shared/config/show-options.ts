import { withoutSecret } from "../basics/text.ts";
import {
  envName,
  type ForeignFlag,
  flagName,
  type OptionTable,
  type Rows,
  type Source,
  type ValuesOf,
} from "./options.ts";

const SOURCE_TEXT: Readonly<Record<Source, string>> = {
  flag: "flag",
  env: "environment",
  file: "file",
  default: "default",
};

/** `--print-config`: the effective values as YAML that `--config` reads, each with its source. Secrets are masked. */
export function printConfig<R extends Rows>(
  table: OptionTable<R>,
  values: ValuesOf<R>,
  sources: ReadonlyMap<string, Source>,
): string {
  const lines = Object.entries(table.options).map(([key, row]) => {
    const value: unknown = (values as Record<string, unknown>)[key];
    // Any option may get a URL with a password by mistake, and values are shown before they are refused.
    const text = yamlValue(row.write(value).map(withoutSecret), row.separator !== undefined);
    return `${flagName(key, row)}: ${text} # ${SOURCE_TEXT[sources.get(key) ?? "default"]}\n`;
  });
  return lines.join("");
}

/** The section of docs/options.md that describes one table. */
export function optionsMarkdown(table: OptionTable): string {
  const parts: string[] = [`## \`culvert ${table.command}\``, "", table.summary, ""];
  let section: string | undefined;
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
    const cells = [
      code(`--${flagName(key, row)}`),
      row.limits === undefined ? row.kind : `${row.kind}, ${row.limits}`,
      row.defaultText ?? row.write(row.default).map(code).join(" "),
      environment.map(code).join(" "),
      row.konnectivity === undefined ? "" : code(row.konnectivity),
      row.separator === undefined
        ? row.help
        : `${row.help} Several: repeat the flag, or separate with ${code(row.separator)}.`,
    ];
    parts.push(`| ${cells.map(cell).join(" | ")} |`);
    if (lastOfSection(table, key)) parts.push("");
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

/** A JSON string is a YAML string. Numbers, durations, sizes and names are plain scalars, which need no quotes. */
function yamlValue(texts: readonly string[], list: boolean): string {
  if (list) return `[${texts.map((text) => JSON.stringify(text)).join(", ")}]`;
  const text = texts[0] ?? "";
  return /^[A-Za-z0-9][A-Za-z0-9.-]*$/.test(text) ? text : JSON.stringify(text);
}

function code(text: string): string {
  return text === "" ? "" : `\`${text}\``;
}

function cell(text: string): string {
  return text.replaceAll("|", "\\|");
}
