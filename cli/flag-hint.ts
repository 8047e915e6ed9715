import { nearest } from "../shared/basics/text.ts";
import { flagNames } from "../shared/config/options.ts";

/** Names that commands have for the same option; each command has one of a row. */
const SAME_MEANING: readonly (readonly string[])[] = [
  ["admin-port", "admin-server-port", "admin-address"],
  ["health-port", "health-server-port"],
  ["health-bind-address", "health-server-host"],
];

/**
 * The sentence behind "There is no flag --x." where another command has that flag, also if it is misspelt: what this
 * command calls it, or which command has it. `known` are the flags of this command. A misspelling of one of those gets
 * no sentence here.
 */
export async function flagHint(flag: string, known: readonly string[]): Promise<string | undefined> {
  const name = flag.replace(/^-+/, "");
  const own = ownName(name, known);
  if (own !== undefined) return `Here it is --${own}.`;
  const commands = await commandsOfFlags();
  const owners = commands.get(name);
  if (owners !== undefined) return `It is one of culvert ${owners.join(" and of culvert ")}.`;
  if (nearest(name, known) !== undefined) return undefined;
  const meant = nearest(name, commands.keys());
  if (meant === undefined) return undefined;
  const ownOfMeant = ownName(meant, known);
  if (ownOfMeant !== undefined) return `Did you mean --${ownOfMeant}?`;
  return `Did you mean --${meant} of culvert ${commands.get(meant)?.join(" or of culvert ")}?`;
}

/** What this command calls a flag of another one. */
function ownName(name: string, known: readonly string[]): string | undefined {
  const same = SAME_MEANING.find((names) => names.includes(name));
  return same?.find((each) => each !== name && known.includes(each));
}

/** Every flag of a command that reads a table of options, and `--admin-address`, with the commands that have it. */
async function commandsOfFlags(): Promise<Map<string, string[]>> {
  const tables = await Promise.all([
    import("../server/options/options.ts").then(({ serverOptions }) => serverOptions),
    import("../agent/options.ts").then(({ agentOptions }) => agentOptions),
    import("../router/options.ts").then(({ routerOptions }) => routerOptions),
  ]);
  const commands = new Map([["admin-address", ["status"]]]);
  for (const { options, command } of tables)
    for (const name of flagNames(options).keys()) commands.set(name, [...(commands.get(name) ?? []), command]);
  return commands;
}
