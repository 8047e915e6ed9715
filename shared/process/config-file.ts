import { readFile } from "node:fs/promises";
import type { RawValue, RawValues } from "./flags.ts";
import { nearest } from "./nearest.ts";
import { camelName, flagNames, type OptionTable } from "./options.ts";

const MAX_FILE_BYTES = 1_048_576;

export interface ConfigFile extends RawValues {
  readonly problems: string[];
}

/** The YAML file of `--config`. The parser is loaded only when there is a file: most starts have none. */
export async function readConfigFile(table: OptionTable, path: string): Promise<ConfigFile> {
  let text: string;
  try {
    text = await readFile(path, "utf8");
  } catch (error) {
    return failed(`--config: cannot read ${path} (${(error as NodeJS.ErrnoException).code ?? String(error)}).`);
  }
  if (text.length > MAX_FILE_BYTES) return failed(`--config: ${path} is larger than 1 MiB.`);
  return parseConfig(table, path, text);
}

/** The content of a configuration file: a mapping of option names (kebab-case or camelCase) to scalars or lists. */
export async function parseConfig(table: OptionTable, path: string, text: string): Promise<ConfigFile> {
  const { parseDocument } = await import("yaml");
  // Every scalar stays the text that was written: `0660` is a mode, `1e3` no number, as on the command line.
  const document = parseDocument(text, { schema: "failsafe", prettyErrors: true });
  if (document.errors.length > 0) {
    return failed(...document.errors.map((error) => `${path}: ${error.message.split("\n")[0] ?? ""}`));
  }
  let content: unknown;
  try {
    content = document.toJS({ maxAliasCount: 100 });
  } catch (error) {
    return failed(`${path}: ${(error as Error).message}`);
  }
  const rows = new Map<string, RawValue>();
  const foreign = new Map<string, string>();
  const problems: string[] = [];
  const result = { rows, foreign, problems };
  if (content === null || content === "") return result;
  if (typeof content !== "object" || Array.isArray(content)) {
    return failed(`${path}: expected "option: value" lines, such as "uds-name: /run/culvert.sock".`);
  }

  const keys = fileKeys(table);
  for (const [name, value] of Object.entries(content)) {
    const texts = scalarTexts(value);
    const key = keys.get(name);
    const as = `${path}: ${name}`;
    if (texts === undefined) problems.push(`${as} needs a value or a list of values.`);
    else if (key !== undefined && rows.has(key)) problems.push(`${as} sets what ${rows.get(key)?.as} has set already.`);
    else if (key !== undefined && Array.isArray(value) && table.options[key]?.separator === undefined) {
      problems.push(`${as} takes one value, not a list.`);
    } else if (key !== undefined) {
      if (texts.length > 0) rows.set(key, { as, texts });
    } else if (Object.hasOwn(table.foreign, name)) foreign.set(name, texts.join(","));
    else problems.push(unknownKey(as, name, keys.keys()));
  }
  return result;
}

function fileKeys(table: OptionTable): Map<string, string> {
  const keys = flagNames(table.options);
  for (const [key, row] of Object.entries(table.options)) keys.set(camelName(key, row), key);
  return keys;
}

/** An empty value (`key:`) counts as not set, like an empty environment variable. */
function scalarTexts(value: unknown): string[] | undefined {
  if (value === null || value === "") return [];
  if (typeof value === "string") return [value];
  if (Array.isArray(value) && value.every((item) => typeof item === "string")) return value;
  return undefined;
}

function unknownKey(as: string, name: string, known: Iterable<string>): string {
  const guess = nearest(name, known);
  return `${as} is no option.${guess === undefined ? "" : ` Did you mean ${guess}?`}`;
}

function failed(...problems: string[]): ConfigFile {
  return { rows: new Map(), foreign: new Map(), problems };
}
