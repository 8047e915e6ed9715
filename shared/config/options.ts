import { MAX_TIMER_MS } from "../basics/timers.ts";
import {
  cipherList,
  cipherSuite,
  formatDuration,
  formatSize,
  inRange,
  type NumberRange,
  parseAddress,
  parseBoolean,
  parseDuration,
  parseIdentifier,
  parseInteger,
  parseLine,
  parseMode,
  parseOneOf,
  parseSize,
  splitList,
  TLS_VERSIONS,
  tlsVersion,
} from "./values.ts";

/** Properties of an option besides its default and its help. */
interface OptionExtras {
  /** Konnectivity's flag that sets this option too; often it has the same name. */
  readonly konnectivity?: `--${string}`;
  /** A second environment variable, read when our own is not set. */
  readonly environment?: string;
  /** Help shows it in place of a default that says nothing ("", 0, a generated value). */
  readonly defaultText?: string;
}

/**
 * One configurable value. Every source delivers text, of which `read` makes a value; it throws an Error whose message
 * continues "--name …".
 */
export interface Option<T> extends OptionExtras {
  readonly kind: string;
  readonly default: T;
  readonly help: string;
  /** Only for lists: what separates items in one text. Flags may also be repeated. */
  readonly separator?: string;
  /** The value is a path of a file that must be readable when the process starts. */
  readonly mustBeReadable?: true;
  readonly section?: string;
  /** The allowed range, for help and docs: `64KiB to 1GiB`. */
  readonly limits?: string;
  /** The allowed range as numbers: milliseconds, bytes, or what is counted. */
  readonly range?: NumberRange;
  read(texts: readonly string[]): T;
  /** Text that `read` turns into the same value; for lists, one text for each item. */
  write(value: T): readonly string[];
}

// biome-ignore lint/suspicious/noExplicitAny: rows of every value type stand in one table.
export type Rows = Readonly<Record<string, Option<any>>>;

/** The values of a table: camelCase keys, durations in ms, sizes in bytes. */
export type ValuesOf<R extends Rows> = { readonly [K in keyof R]: R[K] extends Option<infer V> ? V : never };
export type OptionsOf<T extends { readonly options: Rows }> = ValuesOf<T["options"]>;

/**
 * The effect of a flag of Konnectivity without a row of its own: nothing is lost, it is ignored for a reason, or it is
 * refused.
 */
export type ForeignFlagEffect = "harmless" | { readonly ignored: string } | { readonly refused: string };

/** A flag of Konnectivity (or klog) without a row of its own. */
export interface ForeignFlag {
  readonly boolean: boolean;
  readonly help: string;
  effectOf(value: string): ForeignFlagEffect;
}

/** Where a value came from, in rising precedence. */
export type Source = "default" | "file" | "environment" | "flag";

/** The values before they are final. */
export interface Draft<R extends Rows> {
  readonly values: { -readonly [K in keyof R]: ValuesOf<R>[K] };
  /** Whether the operator has set it, by any source. */
  given(key: keyof R): boolean;
  /** Takes a sentence; all of them are shown together. */
  problem(sentence: string): void;
  warn(sentence: string): void;
}

/**
 * The options of a command. One row gives the flag, the environment variable, the key of the YAML file, `--help` and
 * the line of docs/options.md.
 */
export interface OptionTable<R extends Rows = Rows> {
  readonly command: string;
  readonly summary: string;
  readonly envPrefix: string;
  /** Lines of a command line to begin with. */
  readonly example: readonly string[];
  readonly options: R;
  /** Keys of the options that `--help` shows; `--help all` shows all, as `--help` does where this is absent. */
  readonly firstDay?: readonly string[];
  readonly foreign: Readonly<Record<string, ForeignFlag>>;
  /** Checks what depends on several options, and may derive values. */
  resolve(draft: Draft<R>): void;
}

export function defineOptions<R extends Rows>(table: OptionTable<R>): OptionTable<R> {
  return table;
}

/** Gives the rows a heading in help and docs. */
export function section<R extends Rows>(title: string, rows: R): R {
  return Object.fromEntries(
    Object.entries(rows).map(([key, row]) => [key, { ...row, section: title }]),
  ) as unknown as R;
}

/** The values of a table when nothing is set. */
export function defaultsOf<R extends Rows>(table: OptionTable<R>): ValuesOf<R> {
  return Object.fromEntries(Object.entries(table.options).map(([key, row]) => [key, row.default])) as ValuesOf<R>;
}

/**
 * A configuration that cannot be used, with every fault as a sentence for the operator. The process ends with exit code
 * 2.
 */
export class ConfigError extends Error {
  override readonly name = "ConfigError";
  readonly problems: readonly string[];

  constructor(problems: string | readonly string[], options?: ErrorOptions) {
    const all = [problems].flat();
    super(all.join("\n"), options);
    this.problems = all;
  }
}

/** `connectTimeoutMs` → `connect-timeout`: operators write the unit in the value, code in the name. */
export function flagName(key: string, row: Option<unknown>): string {
  return camelName(key, row).replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`);
}

/** `connectTimeoutMs` → `connectTimeout`, another spelling in YAML files. */
export function camelName(key: string, row: Option<unknown>): string {
  return row.kind === "duration" ? key.replace(/Ms$/, "") : key;
}

export function envName(prefix: string, key: string, row: Option<unknown>): string {
  return `${prefix}_${flagName(key, row).replaceAll("-", "_").toUpperCase()}`;
}

/** Every name of a flag → the key of its row; Konnectivity's names included. */
export function flagNames(options: Rows): Map<string, string> {
  const names = new Map<string, string>();
  for (const [key, row] of Object.entries(options)) {
    names.set(flagName(key, row), key);
    if (row.konnectivity !== undefined) names.set(row.konnectivity.slice(2), key);
  }
  return names;
}

/** A range in the syntax of its option: `64KiB`, `1h`. */
interface TextRange extends OptionExtras {
  readonly min?: string;
  readonly max?: string;
  /** 0 is allowed below `min`: it means "off". */
  readonly orZero?: boolean;
}

interface ListExtras<T extends string = string> extends OptionExtras {
  readonly separator?: "," | ";";
  /** Checks and rewrites one item; throws an Error that names the fault. */
  readonly item?: (text: string) => T;
}

/** The kinds of options: `option.duration("10s", "How long …")`. */
export const option = {
  string: (fallback: string, help: string, extras: OptionExtras = {}): Option<string> =>
    scalar("text", fallback, help, extras, parseLine, String),

  /** A name that other processes and logs show: without spaces, at most 128 characters. */
  identifier: (fallback: string, help: string, extras: OptionExtras = {}): Option<string> =>
    scalar("name", fallback, help, extras, parseIdentifier, String),

  /** A name or an address to bind to or to dial; "" is every interface. An IPv6 address may be in brackets. */
  address: (fallback: string, help: string, extras: OptionExtras = {}): Option<string> =>
    scalar("address", fallback, help, extras, parseAddress, String),

  /** A file that is read at the start, and again when it changes. */
  file: (fallback: string, help: string, extras: OptionExtras = {}): Option<string> => ({
    ...scalar("file", fallback, help, extras, parseLine, String),
    mustBeReadable: true,
  }),

  boolean: (fallback: boolean, help: string, extras: OptionExtras = {}): Option<boolean> =>
    scalar("true|false", fallback, help, extras, parseBoolean, String),

  integer: (fallback: number, help: string, extras: NumberRange & OptionExtras = {}): Option<number> => {
    const row = scalar("number", fallback, help, extras, inRange(parseInteger, String, extras), String);
    return withRange(row, extras, String);
  },

  port: (fallback: number, help: string, extras: OptionExtras = {}): Option<number> =>
    scalar("port", fallback, help, extras, inRange(parseInteger, String, { min: 0, max: 65_535 }), String),

  size: (fallback: string, help: string, extras: TextRange = {}): Option<number> => {
    const range = rangeOf(extras, parseSize);
    const parse = inRange(parseSize, formatSize, range);
    return withRange(scalar("size", parseSize(fallback), help, extras, parse, formatSize), range, formatSize);
  },

  /** Milliseconds inside the program, Go's syntax outside. */
  duration: (fallback: string, help: string, extras: TextRange = {}): Option<number> => {
    const range = rangeOf(extras, parseDuration);
    const read = (text: string): number => Math.ceil(parseDuration(text));
    const parse = inRange(read, formatDuration, { max: MAX_TIMER_MS, ...range });
    const row = scalar("duration", parseDuration(fallback), help, extras, parse, formatDuration);
    return withRange(row, range, formatDuration);
  },

  /** Permission bits in octal, as chmod has them. */
  fileMode: (fallback: string, help: string, extras: OptionExtras = {}): Option<number> =>
    scalar("octal", parseMode(fallback), help, extras, parseMode, (mode) => mode.toString(8).padStart(4, "0")),

  /** `read` replaces other spellings of a value. */
  oneOf: <const V extends string>(
    values: readonly V[],
    fallback: NoInfer<V>,
    help: string,
    extras: OptionExtras & { readonly read?: (text: string) => string } = {},
  ): Option<V> => {
    const parse = (text: string): V => parseOneOf(values, extras.read?.(text) ?? text);
    return scalar(values.join("|"), fallback, help, extras, parse, String);
  },

  /** The oldest TLS version that is spoken, in OpenSSL's spelling or Go's. */
  tlsVersion: (help: string, extras: OptionExtras = {}): Option<(typeof TLS_VERSIONS)[number]> =>
    option.oneOf(TLS_VERSIONS, "TLSv1.2", help, { ...extras, read: tlsVersion }),

  /** A list of suites as the `ciphers` of Node's TLS; "" is Node's own list. */
  cipherSuites: (help: string, extras: OptionExtras = {}): Option<string> => ({
    ...listRow([], help, ",", extras),
    default: "",
    read: (texts) => cipherList(texts.flatMap((text) => splitList(text, ",")).map(cipherSuite)),
    write: (value) => splitList(value, ":"),
  }),

  list: <T extends string = string>(
    fallback: readonly NoInfer<T>[],
    help: string,
    extras: ListExtras<T> = {},
  ): Option<readonly T[]> => {
    const { separator = ",", item = parseLine as (text: string) => T } = extras;
    return {
      ...listRow(fallback, help, separator, extras),
      read: (texts) => texts.flatMap((text) => splitList(text, separator)).map(item),
      write: (value) => value,
    };
  },
} as const;

function scalar<T>(
  kind: string,
  fallback: T,
  help: string,
  extras: OptionExtras,
  parse: (text: string) => T,
  format: (value: T) => string,
): Option<T> {
  return {
    ...extras,
    kind,
    default: fallback,
    help,
    // The last of several wins, as with Go's flags.
    read: (texts) => parse(texts.at(-1) ?? ""),
    write: (value) => [format(value)],
  };
}

function listRow<T extends string>(fallback: readonly T[], help: string, separator: string, extras: OptionExtras) {
  return { ...extras, kind: "list", default: fallback, help, separator };
}

function rangeOf({ min, max, orZero = false }: TextRange, parse: (text: string) => number): NumberRange {
  return {
    ...(min === undefined ? {} : { min: parse(min) }),
    ...(max === undefined ? {} : { max: parse(max) }),
    orZero,
  };
}

function withRange<T>(row: Option<T>, range: NumberRange, format: (value: number) => string): Option<T> {
  const { min, max, orZero } = range;
  if (min === undefined && max === undefined) return row;
  if (min === undefined) return { ...row, range, limits: `at most ${format(max as number)}` };
  const span = max === undefined ? `at least ${format(min)}` : `${format(min)} to ${format(max)}`;
  return { ...row, range, limits: `${orZero ? "0, or " : ""}${span}` };
}
