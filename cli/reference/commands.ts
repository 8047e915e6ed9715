import type { Command } from "commander";
import { commandOf } from "../../shared/config/flags.ts";
import type { OptionTable } from "../../shared/config/options.ts";

/** A command as completion and manual pages show it. */
export interface CommandEntry {
  /** The words that a user types: `culvert pki kubernetes`. */
  readonly name: string;
  readonly aliases: readonly string[];
  /** One line, of the list of commands. */
  readonly summary: string;
  readonly command: Command;
}

/** A command whose options commander does not know, but a table. */
interface WithTable {
  readonly name: string;
  table(): Promise<OptionTable>;
}

/** The program itself, then its commands with theirs, each with all of its options. */
export async function commandEntries(program: Command, tables: readonly WithTable[]): Promise<CommandEntry[]> {
  const withTables = new Map(await Promise.all(tables.map(async ({ name, table }) => [name, await table()] as const)));
  const entriesOf = (command: Command, name: string): CommandEntry[] => {
    const table = withTables.get(command.name());
    const entry = {
      name,
      aliases: command.aliases(),
      summary: command.description(),
      command: table === undefined ? command : commandOf(table),
    };
    const below = command.createHelp().visibleCommands(command);
    return [entry, ...below.flatMap((each) => entriesOf(each, `${name} ${each.name()}`))];
  };
  return entriesOf(program, program.name());
}

/** An option as it is typed and explained. */
export interface OptionEntry {
  readonly long: string;
  readonly short: string | undefined;
  /** The kind of its value: `file`, `a|b`, `host:port`; undefined where it takes none. */
  readonly value: string | undefined;
  readonly help: string;
}

export function optionEntries({ command }: CommandEntry): OptionEntry[] {
  const options = command.createHelp().visibleOptions(command);
  return options.map(({ long, short, flags, description }) => ({
    long: long ?? "",
    short,
    value: /[<[](.+)[\]>]/.exec(flags)?.[1],
    help: description,
  }));
}
