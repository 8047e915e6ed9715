import { nearest } from "../basics/text.ts";
import { printable } from "../outcomes.ts";
import { readConfigFile, unreadable } from "./config-file.ts";
import { parseFlags, type RawValue, type RawValues } from "./flags.ts";
import { defaultsOf, envName, flagName, type OptionTable, type Rows, type Source, type ValuesOf } from "./options.ts";

export interface OptionSources {
  /** The arguments after the command's name. */
  readonly argv: readonly string[];
  readonly env: NodeJS.ProcessEnv;
  /**
   * Returns a sentence about a flag that this table lacks, for example which command has it. `known` are the table's
   * flags.
   */
  readonly hint?: (flag: string, known: readonly string[]) => Promise<string | undefined>;
}

export interface ReadOptions<R extends Rows> {
  readonly values: ValuesOf<R>;
  readonly sources: ReadonlyMap<string, Source>;
  /** Every fault, as sentences. The values may only be used if there are none. */
  readonly problems: readonly string[];
  readonly warnings: readonly string[];
  readonly help: boolean;
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
    const more = (await hint?.(flag, flags.meant)) ?? (guess === undefined ? "" : `Did you mean --${guess}?`);
    problems.push(`There is no flag ${flag}. ${more}`.trimEnd());
  }
  const warnings = unknownVariables(table, env);
  const path = flags.config ?? env[`${table.envPrefix}_CONFIG`];
  const wantsFile = path !== undefined && path !== "" && !flags.help;
  const file = wantsFile ? await readConfigFile(table, path) : undefined;
  if (file !== undefined) problems.push(...file.problems);

  const values: Record<string, unknown> = { ...defaultsOf(table) };
  const sources = new Map<string, Source>();
  const layers: [Source, RawValues | undefined][] = [
    ["file", file],
    ["env", readEnvironment(table, env)],
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
