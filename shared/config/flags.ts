import { Command, Option as Flag } from "commander";
import { getOrMake } from "../basics/collections.ts";
import { nearest, withoutSecret } from "../basics/text.ts";
import { envName, flagName, flagNames, type OptionTable, type Rows, type Source, type ValuesOf } from "./options.ts";

/** One value as a source delivered it; messages call it `as` ("--uds-name"). */
export interface RawValue {
  readonly as: string;
  readonly texts: string[];
}

/** The texts of one source, before they are parsed. */
export interface RawValues {
  readonly rows: Map<string, RawValue>;
  /** Konnectivity's flags without a row: name → value. */
  readonly foreign: Map<string, string>;
}

interface UnknownFlag {
  readonly flag: string;
  /** The known flag that may have been meant. */
  readonly guess: string | undefined;
}

interface ParsedFlags extends RawValues {
  readonly problems: string[];
  readonly unknown: readonly UnknownFlag[];
  /** Names of flags that have an effect. */
  readonly meant: readonly string[];
  /** `--help`, which shows the options of a first day, or `--help all`. */
  readonly help: "first day" | "all" | undefined;
  readonly printConfig: boolean;
  readonly config: string | undefined;
}

const CONFIG_HELP =
  "YAML file with options. Its keys are the names of flags. Flags and environment variables override it.";
const PRINT_HELP = "Print the effective values as YAML, each with its source, and exit.";

/**
 * Parses the command line of a table, spelt as for Konnectivity: underscores equal dashes, `--flag value` and
 * `--flag=value`, bare flags for booleans, the last of several wins. All faults are collected.
 */
export function parseFlags<R extends Rows>(table: OptionTable<R>, argv: readonly string[]): ParsedFlags {
  const rows = new Map<string, RawValue>();
  const foreign = new Map<string, string>();
  const problems: string[] = [];
  const own = new Map<string, string | null>();
  const keys = flagNames(table.options);
  const command = commandOf(table);
  const known = command.options.map((flag) => flag.name());
  // A guess must not lead to a flag without effect, or to one that is refused.
  const meant = known.filter((name) => !Object.hasOwn(table.foreign, name));

  for (const flag of command.options) {
    const name = flag.name();
    command.on(`option:${name}`, (text: string | null) => {
      const key = keys.get(name);
      const row = key === undefined ? undefined : table.options[key];
      const isBoolean = row === undefined ? table.foreign[name]?.boolean === true : row.kind === "true|false";
      const value = text ?? (isBoolean ? "true" : undefined);
      if (name === "help" && typeof text === "string" && text !== "all")
        problems.push("--help takes no value but all.");
      else if (name === "help" || name === "print-config") own.set(name, text);
      else if (value === undefined || (name === "config" && value === "")) problems.push(`--${name} needs a value.`);
      else if (name === "config") own.set(name, value);
      else if (key === undefined) foreign.set(name, value);
      else getOrMake(rows, key, () => ({ as: `--${name}`, texts: [] })).texts.push(value);
    });
  }
  command.parse(withNegatives(argv.map(normalise)), { from: "user" });
  const unknown: UnknownFlag[] = [];
  problems.push(...unknownArguments(command.args, { known, meant }, unknown));
  return {
    rows,
    foreign,
    problems,
    unknown,
    meant,
    help: own.has("help") ? (own.get("help") === "all" ? "all" : "first day") : undefined,
    printConfig: own.has("print-config"),
    config: own.get("config") ?? undefined,
  };
}

/** The text of `--help`. It has our own names of options only; docs/options.md has Konnectivity's too. */
export function helpText(table: OptionTable, which: "first day" | "all" = "all"): string {
  const isShort = which === "first day" && table.firstDay !== undefined;
  const command = commandOf(table, isShort ? table.firstDay : undefined);
  command.addHelpText(
    "after",
    `${isShort ? allOptions(table) : ""}
For example:
${table.example.map((line) => `  ${line}`).join("\n")}

Each option is also an environment variable: ${envExample(table)}.
Precedence: flag, environment, --config file, default.${Object.keys(table.foreign).length === 0 ? "" : " Konnectivity's flags work here too (docs/options.md)."}`,
  );
  let text = "";
  command.configureOutput({ writeOut: (part) => (text += part) }).outputHelp();
  return text;
}

function allOptions({ command, options }: OptionTable): string {
  return `\nThese are the options of a first day. culvert ${command} --help all shows all ${Object.keys(options).length}.\n`;
}

/** Columns of a help text: those of the terminal, between 80 and 120; 100 for a file or a pager. */
export function helpWidth(): number {
  return Math.min(Math.max(process.stdout.columns ?? 100, 80), 120);
}

function envExample(table: OptionTable): string {
  const [first] = Object.entries(table.options);
  return first === undefined ? "" : `--${flagName(...first)} is ${envName(table.envPrefix, ...first)}`;
}

/** The command line of a table, as commander parses and prints it. `shown`: keys of the options in its help. */
export function commandOf(table: OptionTable, shown: readonly string[] = Object.keys(table.options)): Command {
  const command = new Command(`culvert ${table.command}`)
    .description(table.summary)
    .usage("[options]")
    .helpOption(false)
    .allowUnknownOption()
    .allowExcessArguments()
    .configureHelp({ optionTerm, helpWidth: helpWidth(), minWidthToWrap: 30 });
  for (const [key, row] of Object.entries(table.options)) {
    const name = flagName(key, row);
    // For commander every value is optional, so that "--server-cert --server-key x" gets our own clear error.
    const flag = new Flag(`--${name} [${row.kind}]`, `${row.help}${choiceNote(row)}${defaultNote(row)}`);
    command.addOption(flag.helpGroup(`${row.section ?? "Options"}:`).hideHelp(!shown.includes(key)));
    const alias = row.konnectivity?.slice(2);
    if (alias !== undefined && alias !== name) command.addOption(new Flag(`--${alias} [${row.kind}]`).hideHelp());
  }
  for (const name of Object.keys(table.foreign)) {
    command.addOption(new Flag(name === "v" ? "-v, --v [level]" : `--${name} [value]`).hideHelp());
  }
  for (const [flags, help] of [
    ["--config [file]", CONFIG_HELP],
    ["--print-config", PRINT_HELP],
    table.firstDay === undefined
      ? ["-h, --help", "Show this help."]
      : ["-h, --help [all]", "Show these options, or all."],
  ] as const) {
    command.addOption(new Flag(flags, help).helpGroup("This command:"));
  }
  return command;
}

/** Shows `<kind>` for commander's `[kind]`. A long choice would push every description to the right. */
function optionTerm(flag: Flag): string {
  if (flag.name() === "help") return flag.flags;
  return flag.flags.replace(/\[(.*)\]/, (_, kind: string) => (kind.length > 12 ? "<choice>" : `<${kind}>`));
}

function choiceNote(row: Rows[string]): string {
  return row.kind.includes("|") && row.kind.length > 12 ? ` One of ${row.kind.split("|").join(", ")}.` : "";
}

function defaultNote(row: Rows[string]): string {
  const text = row.defaultText ?? row.write(row.default).join(row.separator ?? "");
  return text === "" ? "" : ` (default: ${text})`;
}

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
    return `${flagName(key, row)}: ${text} # ${sources.get(key) ?? "default"}\n`;
  });
  return lines.join("");
}

/** A JSON string is a YAML string. Numbers, durations, sizes and names are plain scalars, which need no quotes. */
function yamlValue(texts: readonly string[], list: boolean): string {
  if (list) return `[${texts.map((text) => JSON.stringify(text)).join(", ")}]`;
  const text = texts[0] ?? "";
  return /^[A-Za-z0-9][A-Za-z0-9.-]*$/.test(text) ? text : JSON.stringify(text);
}

/** `--uds_name=a_b` → `--uds-name=a_b`; `-v=4` as Go writes it → `--v=4`. */
function normalise(argument: string): string {
  if (!argument.startsWith("--")) return argument.replace(/^-v=?(\d+)$/, "--v=$1");
  const end = argument.indexOf("=");
  const name = end < 0 ? argument : argument.slice(0, end);
  return name.replaceAll("_", "-") + argument.slice(name.length);
}

/** `--dial-timeout -5s` → `--dial-timeout=-5s`: otherwise commander would take the wrong value for a flag. */
function withNegatives(argv: readonly string[]): string[] {
  const joined: string[] = [];
  for (const argument of argv) {
    const before = joined.at(-1) ?? "";
    if (/^-[.\d]/.test(argument) && /^--[^=]+$/.test(before)) joined[joined.length - 1] = `${before}=${argument}`;
    else joined.push(argument);
  }
  return joined;
}

interface FlagNames {
  readonly known: readonly string[];
  /** Flags with an effect, for guesses. */
  readonly meant: readonly string[];
}

function unknownArguments(rest: readonly string[], names: FlagNames, unknown: UnknownFlag[]): string[] {
  const problems: string[] = [];
  let afterUnknown = false;
  for (const argument of rest) {
    const isFlag = argument.startsWith("-") && argument !== "-" && argument !== "--";
    if (isFlag) {
      const flag = argument.replace(/=.*$/s, "");
      // Commander has parsed all known flags with values, so this one takes none.
      if (names.known.some((name) => flag === `--${name}`)) problems.push(`${flag} takes no value.`);
      else unknown.push({ flag: clip(flag), guess: nearest(flag.replace(/^-+/, ""), names.meant) });
    } else if (!afterUnknown) {
      problems.push(`Unexpected argument ${JSON.stringify(clip(argument))}: options are written --name=value.`);
    }
    // The argument after an unknown flag is most likely its value, and needs no error of its own.
    afterUnknown = isFlag && !argument.includes("=");
  }
  return problems;
}

function clip(text: string): string {
  return text.length <= 60 ? text : `${text.slice(0, 57)}...`;
}
