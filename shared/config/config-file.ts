import { accessSync, constants, createReadStream, fstatSync, openSync, statSync } from "node:fs";
import { Socket } from "node:net";
import type { Readable } from "node:stream";
import { nearest } from "../basics/text.ts";
import { printable } from "../outcomes.ts";
import type { RawValue, RawValues } from "./flags.ts";
import { camelName, flagNames, type OptionTable } from "./options.ts";

const MAX_FILE_BYTES = 1_048_576;
/** Time from opening a pipe to its end, ms. */
const PIPE_MS = 10_000;
/** Faults of one file that are reported. */
const MAX_PROBLEMS = 20;

export interface ConfigFile extends RawValues {
  readonly problems: string[];
}

/**
 * Reads the YAML file of `--config`: it maps option names (kebab-case, with underscores, or camelCase) to scalars or
 * lists.
 */
export async function readConfigFile(table: OptionTable, path: string): Promise<ConfigFile> {
  const fault = unreadable(path);
  if (fault !== undefined) return unusable([`--config: ${fault}.`]);
  let text: string | undefined;
  try {
    text = await readBounded(path);
  } catch (error) {
    return unusable([`--config: cannot read ${path} (${(error as Error).message}).`]);
  }
  if (text === undefined) return unusable([`--config: ${path} is larger than 1 MiB.`]);
  const { yamlEntries } = await import("../documents/yaml.ts");
  const { entries, faults } = yamlEntries(text);
  if (faults.length > 0) return unusable(faults.map((sentence) => `${path}: ${sentence}`));

  const rows = new Map<string, RawValue>();
  const foreign = new Map<string, string>();
  const problems: string[] = [];
  const keys = fileKeys(table);
  for (const { name, isList, texts } of entries) {
    const dashed = name.replaceAll("_", "-");
    const key = keys.get(dashed);
    const as = `${path}: ${printable(name, 60)}`;
    if (problems.length > MAX_PROBLEMS) break;
    if (texts === undefined) problems.push(`${as} needs a value or a list of values, written out.`);
    else if (key !== undefined && rows.has(key)) problems.push(`${as} sets what ${rows.get(key)?.as} has set already.`);
    else if (key !== undefined && isList && table.options[key]?.separator === undefined) {
      problems.push(`${as} takes one value, not a list.`);
    } else if (key !== undefined) {
      if (texts.length > 0) rows.set(key, { as, texts: [...texts] });
    } else if (foreign.has(dashed)) problems.push(`${as} is there twice.`);
    else if (Object.hasOwn(table.foreign, dashed)) foreign.set(dashed, texts.join(","));
    else problems.push(unknownKey(as, dashed, keys.keys()));
  }
  return { rows, foreign, problems: bounded(problems) };
}

/** Why this user cannot read the file; `undefined`: it is readable. */
export function unreadable(path: string): string | undefined {
  try {
    accessSync(path, constants.R_OK);
    return statSync(path).isDirectory() ? `${path} is a directory, not a file` : undefined;
  } catch (error) {
    const code = (error as NodeJS.ErrnoException).code;
    if (code === "ENOENT") return `${path} does not exist`;
    return code === "EACCES" ? `${path} is not readable for this user` : `cannot read ${path} (${code})`;
  }
}

/** Counts the bytes that it reads, since a pipe or a device has no size. `undefined`: the file is too large. */
async function readBounded(path: string): Promise<string | undefined> {
  const source = opened(path);
  const late = () => source.destroy(new Error(`a pipe, and its writer has not ended within ${PIPE_MS / 1_000} s`));
  const deadline = source instanceof Socket ? setTimeout(late, PIPE_MS) : undefined;
  const chunks: Buffer[] = [];
  let bytes = 0;
  try {
    for await (const chunk of source as AsyncIterable<Buffer>) {
      chunks.push(chunk);
      bytes += chunk.length;
      if (bytes > MAX_FILE_BYTES) return undefined;
    }
  } finally {
    clearTimeout(deadline);
  }
  return Buffer.concat(chunks).toString("utf8");
}

/**
 * Opens a pipe (`--config <(…)`) without waiting for its writer, and reads it in the event loop. A usual open() would
 * block a thread until there is a writer.
 */
function opened(path: string): Readable {
  const fd = openSync(path, constants.O_RDONLY | constants.O_NONBLOCK);
  return fstatSync(fd).isFIFO() ? new Socket({ fd, writable: false }) : createReadStream(path, { fd });
}

function fileKeys(table: OptionTable): Map<string, string> {
  const keys = flagNames(table.options);
  for (const [key, row] of Object.entries(table.options)) keys.set(camelName(key, row), key);
  return keys;
}

function unknownKey(as: string, name: string, known: Iterable<string>): string {
  const guess = nearest(name, known);
  return `${as} is no option.${guess === undefined ? "" : ` Did you mean ${guess}?`}`;
}

function unusable(problems: readonly string[]): ConfigFile {
  return { rows: new Map(), foreign: new Map(), problems: bounded(problems) };
}

function bounded(problems: readonly string[]): string[] {
  if (problems.length <= MAX_PROBLEMS) return [...problems];
  return [...problems.slice(0, MAX_PROBLEMS), `These are the first ${MAX_PROBLEMS} faults of the file.`];
}
