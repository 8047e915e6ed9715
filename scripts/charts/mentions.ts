import { envName, flagName, flagNames, type OptionTable } from "../../shared/config/options.ts";

/** Flags of other programs that templates start or speak of. */
const OF_OTHERS: ReadonlySet<string> = new Set([
  "egress-selector-config-file", // kube-apiserver
  "egress-selector-mode", // k3s
  "eval", // node
  "input-type", // node
]);

/** Names that a text of a chart may use. */
export interface KnownNames {
  readonly flags: ReadonlySet<string>;
  readonly variables: ReadonlySet<string>;
  readonly options: ReadonlySet<string>;
}

/** `commands`: sources of commands without an option table, whose flags are declared to commander. */
export function knownNames(tables: Iterable<OptionTable>, commands: readonly string[]): KnownNames {
  const flags = new Set([...OF_OTHERS, "config", "print-config", "help"]);
  const variables = new Set<string>();
  const options = new Set<string>();
  for (const { options: rows, envPrefix } of tables) {
    for (const name of flagNames(rows).keys()) flags.add(name);
    variables.add(`${envPrefix}_CONFIG`);
    for (const [key, row] of Object.entries(rows)) {
      options.add(flagName(key, row));
      variables.add(envName(envPrefix, key, row));
    }
  }
  for (const source of commands) {
    for (const [, name] of source.matchAll(/\.(?:requiredO|o)ption\(\s*"(?:-\w, )?--([\w-]+)/g))
      flags.add(name as string);
  }
  return { flags, variables, options };
}

/** A sentence for each flag, variable and option that a template, a values file or an example names and nobody has. */
export function unknownMentions(text: string, file: string, known: KnownNames): string[] {
  const unknown = new Set<string>();
  for (const [, name] of text.matchAll(/(?<![\w-])--([a-z][a-z0-9-]*)/g)) {
    if (!known.flags.has(name as string)) unknown.add(`the flag --${name}`);
  }
  for (const [name] of text.matchAll(/\bCULVERT_[A-Z0-9_]+/g)) {
    if (!known.variables.has(name)) unknown.add(`the environment variable ${name}`);
  }
  // How templates collect the file of --config.
  for (const [, name] of text.matchAll(/\bset \$config "([^"]*)"/g)) {
    if (!known.options.has(name as string)) unknown.add(`the option ${name}`);
  }
  return [...unknown].map((what) => `${file} names ${what}, which culvert does not have.`);
}
