import type { Option } from "./option.ts";

export { option } from "./option.ts";

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
