import { isIP } from "node:net";
import {
  cipherList,
  cipherSuite,
  formatDuration,
  formatSize,
  MAX_DURATION_MS,
  parseDuration,
  parseSize,
  TLS_VERSIONS,
  tlsVersion,
} from "./values.ts";

/**
 * The option table of a command (design: "Configuration"): one row gives the flag, the environment
 * variable, the key of the YAML file, `--help` and the docs page.
 */

// biome-ignore lint/suspicious/noExplicitAny: rows of every value type stand in one table.
export type Rows = Readonly<Record<string, Option<any>>>;

/** The values of a table: camelCase keys, durations in ms, sizes in bytes. */
export type ValuesOf<R extends Rows> = { readonly [K in keyof R]: R[K] extends Option<infer V> ? V : never };
export type OptionsOf<T extends { readonly options: Rows }> = ValuesOf<T["options"]>;

/** What becomes of a flag of Konnectivity (or klog) that has no row of its own. */
export type Verdict = "fine" | { readonly ignored: string } | { readonly refused: string };

export interface ForeignFlag {
  readonly boolean: boolean;
  readonly help: string;
  judge(value: string): Verdict;
}

/** Where a value came from, in rising precedence. */
export type Source = "default" | "file" | "env" | "flag";

/** The values before they are final: `settle` of a table checks what crosses options, and may derive. */
export interface Draft<R extends Rows> {
  readonly values: { -readonly [K in keyof R]: ValuesOf<R>[K] };
  /** Was it set by the operator, in whatever way? */
  given(key: keyof R): boolean;
  /** A sentence; all of them are shown at once. */
  problem(sentence: string): void;
  warn(sentence: string): void;
}

export interface OptionTable<R extends Rows = Rows> {
  readonly command: string;
  readonly summary: string;
  readonly envPrefix: string;
  /** A command line to begin with, in lines. */
  readonly example: readonly string[];
  readonly options: R;
  readonly foreign: Readonly<Record<string, ForeignFlag>>;
  settle(draft: Draft<R>): void;
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

/** The values of a table when nothing is set; what tests and the harness start from. */
export function defaultsOf<R extends Rows>(table: OptionTable<R>): ValuesOf<R> {
  return Object.fromEntries(Object.entries(table.options).map(([key, row]) => [key, row.default])) as ValuesOf<R>;
}

/** A configuration that cannot be used; every fault found, each a sentence for the operator. Exit code 2. */
export class ConfigError extends Error {
  override readonly name = "ConfigError";
  readonly problems: readonly string[];

  constructor(problems: string | readonly string[], options?: ErrorOptions) {
    const all = typeof problems === "string" ? [problems] : problems;
    super(all.join("\n"), options);
    this.problems = all;
  }
}

/** `connectTimeoutMs` → `connect-timeout`: the unit is in the value outside, in the name inside. */
export function flagName(key: string, row: Option<unknown>): string {
  return camelName(key, row).replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`);
}

/** `connectTimeoutMs` → `connectTimeout`, as a YAML file may spell it. */
export function camelName(key: string, row: Option<unknown>): string {
  return row.kind === "duration" ? key.replace(/Ms$/, "") : key;
}

export function envName(prefix: string, key: string, row: Option<unknown>): string {
  return `${prefix}_${flagName(key, row).replaceAll("-", "_").toUpperCase()}`;
}

/** Every name of a flag → the key of its row; Konnectivity's other names included. */
export function flagNames(options: Rows): Map<string, string> {
  const names = new Map<string, string>();
  for (const [key, row] of Object.entries(options)) {
    names.set(flagName(key, row), key);
    if (row.konnectivity !== undefined) names.set(row.konnectivity.slice(2), key);
  }
  return names;
}

/** What an option may say about itself besides its default and its help. */
export interface OptionExtras {
  /** Konnectivity's flag that this option answers to; the same name where it was kept. */
  readonly konnectivity?: `--${string}`;
  /** One more environment variable, read after our own. */
  readonly environment?: string;
  /** Shown in help in place of a default that says nothing ("", 0, a generated value). */
  readonly defaultText?: string;
}

/**
 * One configurable value (design: "Configuration"): every source delivers text, `read` makes a value
 * of it or throws an Error whose message continues "--name …".
 */
export interface Option<T> extends OptionExtras {
  readonly kind: string;
  readonly default: T;
  readonly help: string;
  /** Set for lists: how several items stand in one text. Flags may also be repeated. */
  readonly separator?: string;
  /** The file must be readable when the process starts. */
  readonly mustBeReadable?: true;
  readonly section?: string;
  /** Which values of its kind it takes, where not all. */
  readonly limits?: string;
  /** The same as numbers: milliseconds, bytes, or what is counted. */
  readonly bounds?: Bounds;
  read(texts: readonly string[]): T;
  /** Text that `read` takes back; for lists, one text for each item. */
  write(value: T): readonly string[];
}

export interface NumberBounds extends OptionExtras {
  readonly min?: number;
  readonly max?: number;
}

export interface DurationBounds extends OptionExtras {
  readonly min?: string;
  readonly max?: string;
  /** 0 is taken as well, below `min`: it means "off". */
  readonly orZero?: boolean;
}

export interface ListExtras<T> extends OptionExtras {
  readonly separator?: "," | ";";
  /** Checks and rewrites one item; throws an Error that names the fault. */
  readonly item?: (text: string) => T;
}

/** The kinds of options: `option.duration("10s", "How long …")`. */
export const option = {
  string: (fallback: string, help: string, extras: OptionExtras = {}): Option<string> =>
    scalar("text", fallback, help, extras, oneLine, String),

  /** A name that other processes and logs show: no spaces, bounded. */
  identifier: (fallback: string, help: string, extras: OptionExtras = {}): Option<string> =>
    scalar("name", fallback, help, extras, parseIdentifier, String),

  /** A name or an address to bind to or to dial, "" for every interface; the brackets of an IPv6 address may stay. */
  address: (fallback: string, help: string, extras: OptionExtras = {}): Option<string> =>
    scalar("address", fallback, help, extras, parseAddress, String),

  /** A file that is read at the start, and again when it changes. */
  file: (fallback: string, help: string, extras: OptionExtras = {}): Option<string> => ({
    ...scalar("file", fallback, help, extras, oneLine, String),
    mustBeReadable: true,
  }),

  boolean: (fallback: boolean, help: string, extras: OptionExtras = {}): Option<boolean> =>
    scalar("true|false", fallback, help, extras, parseBoolean, String),

  integer: (fallback: number, help: string, extras: NumberBounds = {}): Option<number> => {
    const row = scalar("number", fallback, help, extras, bounded(parseInteger, String, extras), String);
    return withLimits(row, extras, String);
  },

  port: (fallback: number, help: string, extras: OptionExtras = {}): Option<number> =>
    scalar("port", fallback, help, extras, bounded(parseInteger, String, { min: 0, max: 65_535 }), String),

  size: (fallback: string, help: string, extras: DurationBounds = {}): Option<number> => {
    const bounds = boundsOf(extras, parseSize);
    const parse = bounded(parseSize, formatSize, bounds);
    return withLimits(scalar("size", parseSize(fallback), help, extras, parse, formatSize), bounds, formatSize);
  },

  /** Milliseconds in the program, Go's syntax outside. */
  duration: (fallback: string, help: string, extras: DurationBounds = {}): Option<number> => {
    const bounds = boundsOf(extras, parseDuration);
    const read = (text: string): number => Math.ceil(parseDuration(text));
    const parse = bounded(read, formatDuration, { max: MAX_DURATION_MS, ...bounds });
    const row = scalar("duration", parseDuration(fallback), help, extras, parse, formatDuration);
    return withLimits(row, bounds, formatDuration);
  },

  /** Permission bits in octal, as chmod takes them. */
  fileMode: (fallback: string, help: string, extras: OptionExtras = {}): Option<number> =>
    scalar("octal", parseMode(fallback), help, extras, parseMode, (mode) => mode.toString(8).padStart(4, "0")),

  oneOf: <const V extends string>(
    values: readonly V[],
    fallback: NoInfer<V>,
    help: string,
    extras: OptionExtras & { readonly read?: (text: string) => string } = {},
  ): Option<V> => {
    const parse = (text: string): V => {
      const meant = extras.read?.(text) ?? text;
      const found = values.find((value) => value === meant);
      if (found === undefined) throw new Error(`needs one of ${values.join(", ")}, not ${shown(text)}`);
      return found;
    };
    return scalar(values.join("|"), fallback, help, extras, parse, String);
  },

  /** The oldest TLS version that is spoken, in OpenSSL's spelling; Go's is understood. */
  tlsVersion: (help: string, extras: OptionExtras = {}): Option<(typeof TLS_VERSIONS)[number]> =>
    option.oneOf(TLS_VERSIONS, "TLSv1.2", help, { ...extras, read: tlsVersion }),

  /** The `ciphers` of Node's TLS out of a list of suites; "" leaves Node's own. */
  cipherSuites: (help: string, extras: OptionExtras = {}): Option<string> => ({
    ...withoutParser(extras),
    kind: "list",
    default: "",
    help,
    separator: ",",
    read: (texts) => cipherList(texts.flatMap((text) => split(text, ",")).map(cipherSuite)),
    write: (value) => split(value, ":"),
  }),

  list: (fallback: readonly string[], help: string, extras: ListExtras<string> = {}): Option<readonly string[]> => {
    const separator = extras.separator ?? ",";
    const item = extras.item ?? oneLine;
    return {
      ...withoutParser(extras),
      kind: "list",
      default: fallback,
      help,
      separator,
      read: (texts) => texts.flatMap((text) => split(text, separator)).map(item),
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
    ...withoutParser(extras),
    kind,
    default: fallback,
    help,
    // As with Go's flags, the last of several wins.
    read: (texts) => parse(texts.at(-1) ?? ""),
    write: (value) => [format(value)],
  };
}

function withoutParser(extras: OptionExtras): OptionExtras {
  const { konnectivity, environment, defaultText } = extras;
  return {
    ...(konnectivity === undefined ? {} : { konnectivity }),
    ...(environment === undefined ? {} : { environment }),
    ...(defaultText === undefined ? {} : { defaultText }),
  };
}

export interface Bounds {
  readonly min?: number;
  readonly max?: number;
  readonly orZero?: boolean;
}

function boundsOf({ min, max, orZero = false }: DurationBounds, parse: (text: string) => number): Bounds {
  return {
    ...(min === undefined ? {} : { min: parse(min) }),
    ...(max === undefined ? {} : { max: parse(max) }),
    orZero,
  };
}

function bounded(
  parse: (text: string) => number,
  format: (value: number) => string,
  bounds: Bounds,
): (text: string) => number {
  const { min = 0, max = Number.MAX_SAFE_INTEGER, orZero = false } = bounds;
  return (text) => {
    const value = parse(text);
    if (orZero && value === 0) return value;
    if (value < min) throw new Error(`needs ${orZero ? "0, or " : ""}at least ${format(min)}, not ${shown(text)}`);
    if (value > max) throw new Error(`takes at most ${format(max)}, not ${shown(text)}`);
    return value;
  };
}

function withLimits<T>(row: Option<T>, bounds: Bounds, format: (value: number) => string): Option<T> {
  const { min, max, orZero } = bounds;
  if (min === undefined && max === undefined) return row;
  const zero = orZero ? "0, or " : "";
  if (min === undefined) return { ...row, bounds, limits: `at most ${format(max as number)}` };
  return {
    ...row,
    bounds,
    limits: `${zero}${max === undefined ? `at least ${format(min)}` : `${format(min)} to ${format(max)}`}`,
  };
}

function split(text: string, separator: string): string[] {
  return text
    .split(separator)
    .map((item) => item.trim())
    .filter((item) => item !== "");
}

/** Control bytes in a name or path are always a quoting accident, and would forge log lines. */
function oneLine(text: string): string {
  // biome-ignore lint/suspicious/noControlCharactersInRegex: finding them is the point.
  if (/[\x00-\x1f\x7f]/.test(text)) throw new Error("must not contain line breaks or control characters");
  return text;
}

/** A colon that belongs to no IPv6 address is somebody's port, which has an option of its own. */
function parseAddress(text: string): string {
  const address = text.replace(/^\[(.*)\]$/, "$1");
  if (isIP(address) !== 0 || /^[^\s/@:[\]]*$/.test(oneLine(address))) return address;
  throw new Error(`needs a host name or an IP address, without scheme and port, not ${shown(text)}`);
}

function parseIdentifier(text: string): string {
  if (!/^[A-Za-z0-9._:-]{0,128}$/.test(text)) throw new Error("needs at most 128 letters, digits and . _ : -");
  return text;
}

/** The spellings of Go's strconv.ParseBool, which Konnectivity's manifests may use. */
function parseBoolean(text: string): boolean {
  if (["true", "t", "1"].includes(text.toLowerCase())) return true;
  if (["false", "f", "0"].includes(text.toLowerCase())) return false;
  throw new Error(`needs true or false, not ${shown(text)}`);
}

function parseInteger(text: string): number {
  if (!/^-?\d{1,15}$/.test(text.trim())) throw new Error(`needs a whole number, not ${shown(text)}`);
  return Number(text);
}

function parseMode(text: string): number {
  if (!/^(0o)?[0-7]{3,4}$/.test(text)) throw new Error(`needs a mode in octal such as 0660, not ${shown(text)}`);
  const mode = Number.parseInt(text.replace("0o", ""), 8);
  if (mode > 0o777) throw new Error(`takes permission bits only (at most 0777), not ${shown(text)}`);
  return mode;
}

function shown(text: string): string {
  return JSON.stringify(text.length <= 60 ? text : `${text.slice(0, 57)}...`);
}
