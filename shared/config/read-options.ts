import { accessSync, constants, createReadStream, fstatSync, openSync, statSync } from "node:fs";
import { Socket } from "node:net";
import type { Readable } from "node:stream";
import { nearest } from "../basics/text.ts";
import { printable } from "../outcomes.ts";
import { parseFlags, type RawValue, type RawValues } from "./flags.ts";
import {
  camelName,
  defaultsOf,
  envName,
  flagName,
  flagNames,
  type OptionTable,
  type Rows,
  type Source,
  type ValuesOf,
} from "./options.ts";

interface OptionSources {
  /** The arguments after the command's name. */
  readonly argv: readonly string[];
  readonly env: NodeJS.ProcessEnv;
  /**
   * Returns a sentence about a flag that this table lacks, for example which command has it. `known` are the table's
   * flags.
   */
  readonly hint?: (flag: string, known: readonly string[]) => Promise<string | undefined>;
}

interface ReadOptions<R extends Rows> {
  readonly values: ValuesOf<R>;
  readonly sources: ReadonlyMap<string, Source>;
  /** Every fault, as sentences. The values may only be used if there are none. */
  readonly problems: readonly string[];
  readonly warnings: readonly string[];
  /** See `helpText`. */
  readonly help: "first day" | "all" | undefined;
  readonly printConfig: boolean;
}

/** Reads a table's values from all sources, by precedence flag > environment > file > default. */
export async function readOptions<R extends Rows>(
  table: OptionTable<R>,
  { argv, env, hint }: OptionSources,
): Promise<ReadOptions<R>> {
  const flags = parseFlags(table, argv);
  const problems = [...flags.problems];
  for (const { flag, guess } of flags.unknown) {
    const cure = guess === undefined ? `culvert ${table.command} --help lists them.` : `Did you mean --${guess}?`;
    problems.push(`There is no flag ${flag}. ${(await hint?.(flag, flags.meant)) ?? cure}`);
  }
  const warnings = unknownVariables(table, env);
  const path = flags.config ?? env[`${table.envPrefix}_CONFIG`];
  const wantsFile = path !== undefined && path !== "" && flags.help === undefined;
  const file = wantsFile ? await readConfigFile(table, path) : undefined;
  if (file !== undefined) problems.push(...file.problems);

  const values: Record<string, unknown> = { ...defaultsOf(table) };
  const sources = new Map<string, Source>();
  const layers: [Source, RawValues | undefined][] = [
    ["file", file],
    ["environment", readEnvironment(table, env)],
    ["flag", flags],
  ];
  for (const [source, layer] of layers) {
    for (const [key, raw] of layer?.rows ?? []) {
      const row = table.options[key];
      if (row === undefined) continue;
      sources.set(key, source);
      try {
        values[key] = row.read(raw.texts);
      } catch (error) {
        problems.push(`${raw.as} ${(error as Error).message}.`);
      }
    }
  }
  applyForeign(table, [file, flags], problems, warnings);
  for (const [key, row] of Object.entries(table.options)) {
    const named = row.mustBeReadable === true ? (values[key] as string) : "";
    const fault = named === "" ? undefined : unreadable(named);
    if (fault !== undefined) problems.push(`--${flagName(key, row)}: ${fault}.`);
  }
  // Checks across options would report as missing what a misspelt flag, or a file that cannot be read, was to give.
  if (flags.unknown.length === 0 && (file === undefined || file.problems.length === 0)) {
    table.resolve({
      values: values as { -readonly [K in keyof R]: ValuesOf<R>[K] },
      given: (key) => sources.has(key as string),
      problem: (sentence) => problems.push(sentence),
      warn: (sentence) => warnings.push(sentence),
    });
  }
  return {
    values: values as ValuesOf<R>,
    sources,
    problems,
    warnings,
    help: flags.help,
    printConfig: flags.printConfig,
  };
}

/** Adds one warning for all flags without effect, with the reasons, and a problem for each flag that is refused. */
function applyForeign(
  table: OptionTable,
  layers: readonly (RawValues | undefined)[],
  problems: string[],
  warnings: string[],
): void {
  const effective = new Map(layers.flatMap((layer) => [...(layer?.foreign ?? [])]));
  const byReason = new Map<string, string[]>();
  for (const [name, text] of effective) {
    const effect = table.foreign[name]?.effectOf(text) ?? "harmless";
    if (effect === "harmless") continue;
    if ("refused" in effect) problems.push(`--${name}: ${effect.refused}`);
    else byReason.set(effect.ignored, [...(byReason.get(effect.ignored) ?? []), `--${name}`]);
  }
  const reasons = [...byReason].map(([reason, names]) => `${names.join(", ")} (${reason})`);
  if (reasons.length > 0) warnings.push(`Accepted without effect: ${reasons.join("; ")}.`);
}

// ── the environment ──────────────────────────────────────────────────────────────────────────────────────────────────

/**
 * Value of a variable that Kubernetes sets in every pod for a Service.
 * `CULVERT_SERVER_AGENT_PORT=tcp://10.96.0.7:8091`, for a Service "culvert-server-agent", has the name of our option,
 * but its value is never a port.
 */
const SERVICE_LINK = /^(?:tcp|udp|sctp):\/\//;

/** Names of the other variables that Kubernetes sets for a Service. They are no options. */
const SERVICE_VARIABLE = /_SERVICE_(?:HOST|PORT(?:_\w+)?)$|_PORT_\d+_(?:TCP|UDP|SCTP)(?:_(?:PROTO|PORT|ADDR))?$/;

/** The values of a table's environment variables. An empty variable is not set. */
function readEnvironment(table: OptionTable, env: NodeJS.ProcessEnv): RawValues {
  const rows = new Map<string, RawValue>();
  for (const [key, row] of Object.entries(table.options)) {
    for (const name of [envName(table.envPrefix, key, row), row.environment]) {
      const text = name === undefined ? undefined : env[name];
      if (name === undefined || text === undefined || text === "" || SERVICE_LINK.test(text)) continue;
      rows.set(key, { as: name, texts: [text] });
      break;
    }
  }
  return { rows, foreign: new Map() };
}

/** A sentence for each variable that has the table's prefix, names no option, and does not come from Kubernetes. */
function unknownVariables(table: OptionTable, env: NodeJS.ProcessEnv): string[] {
  const prefix = `${table.envPrefix}_`;
  const names = Object.entries(table.options).map(([key, row]) => envName(table.envPrefix, key, row));
  const known = new Set([...names, `${prefix}CONFIG`].map((name) => name.slice(prefix.length)));
  return Object.entries(env).flatMap(([name, text = ""]) => {
    const word = name.slice(prefix.length);
    if (!name.startsWith(prefix) || known.has(word) || text === "") return [];
    if (SERVICE_VARIABLE.test(name) || SERVICE_LINK.test(text)) return [];
    // The common prefix is left out, since it would make unlike names similar.
    const guess = nearest(word, known);
    const cure = guess === undefined ? "docs/options.md has all names" : `did you mean ${prefix}${guess}?`;
    return [`${printable(name, 100)} is not known: ${cure}`];
  });
}

// ── the file of --config ─────────────────────────────────────────────────────────────────────────────────────────────

/** Maximum size of the file, bytes. */
const MAX_FILE_BYTES = 1_048_576;
/** Time from opening a pipe to its end, ms. */
const PIPE_MS = 10_000;
/** Maximum number of faults that are reported. */
const MAX_PROBLEMS = 20;

interface ConfigFile extends RawValues {
  readonly problems: string[];
}

/**
 * Reads the YAML file of `--config`: it maps option names (kebab-case, with underscores, or camelCase) to scalars or
 * lists.
 */
async function readConfigFile(table: OptionTable, path: string): Promise<ConfigFile> {
  const obstacle = unreadable(path);
  if (obstacle !== undefined) return unusable(`--config: ${obstacle}.`);
  let text: string | undefined;
  try {
    text = await readBounded(path);
  } catch (error) {
    return unusable(`--config: cannot read ${path} (${(error as Error).message}).`);
  }
  if (text === undefined) return unusable(`--config: ${path} is larger than 1 MiB.`);
  // Few processes read YAML. By import(), the package itself would have no names in the bundled build (decision 0039).
  const { yamlValues } = await import("../documents/yaml.ts");
  const { values, fault } = yamlValues(text);
  if (fault !== undefined) return unusable(`${path}: ${fault}`);

  const rows = new Map<string, RawValue>();
  const foreign = new Map<string, string>();
  const problems: string[] = [];
  const keys = flagNames(table.options);
  for (const [key, row] of Object.entries(table.options)) keys.set(camelName(key, row), key);
  for (const [name, value] of Object.entries(values)) {
    const texts = value === "" ? [] : [value].flat();
    const dashed = name.replaceAll("_", "-");
    const key = keys.get(dashed);
    const as = `${path}: ${printable(name, 60)}`;
    if (problems.length > MAX_PROBLEMS) break;
    if (!texts.every((text) => typeof text === "string")) problems.push(`${as} needs a value or a list of values.`);
    else if (key !== undefined && rows.has(key)) problems.push(`${as} sets what ${rows.get(key)?.as} has set already.`);
    else if (key !== undefined && typeof value !== "string" && table.options[key]?.separator === undefined) {
      problems.push(`${as} takes one value, not a list.`);
    } else if (key !== undefined) {
      if (texts.length > 0) rows.set(key, { as, texts: [...texts] });
    } else if (foreign.has(dashed)) problems.push(`${as} is there twice.`);
    else if (Object.hasOwn(table.foreign, dashed)) foreign.set(dashed, texts.join(","));
    else problems.push(unknownKey(table, as, nearest(dashed, keys.keys())));
  }
  return { rows, foreign, problems: bounded(problems) };
}

/** Why this user cannot read the file; `undefined`: it is readable. */
function unreadable(path: string): string | undefined {
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

function unknownKey({ command }: OptionTable, as: string, guess: string | undefined): string {
  return `${as} is no option. ${guess === undefined ? `culvert ${command} --help lists them.` : `Did you mean ${guess}?`}`;
}

function unusable(problem: string): ConfigFile {
  return { rows: new Map(), foreign: new Map(), problems: [problem] };
}

function bounded(problems: readonly string[]): string[] {
  if (problems.length <= MAX_PROBLEMS) return [...problems];
  return [...problems.slice(0, MAX_PROBLEMS), `These are the first ${MAX_PROBLEMS} faults of the file.`];
}
