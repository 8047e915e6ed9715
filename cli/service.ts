import { nearest } from "../shared/basics/text.ts";
import { helpText } from "../shared/config/flags.ts";
import type { OptionTable, Rows, ValuesOf } from "../shared/config/options.ts";
import { flagNames } from "../shared/config/options.ts";
import { readOptions } from "../shared/config/read-options.ts";
import { printConfig } from "../shared/config/show-options.ts";
import { recheckAllFiles } from "../shared/documents/file-watcher.ts";
import { tuneHeapForRelaying } from "../shared/node/v8.ts";
import { createLogger, isForPeople, type Logger } from "../shared/runtime/logger.ts";
import { type Closable, run } from "../shared/runtime/run.ts";

/** What every table with a log has (shared/config/common-options.ts). */
type LogValues = { readonly logLevel: string; readonly logFormat: "auto" | "json" | "pretty" };

/**
 * `culvert server`, `culvert agent` and `culvert router`: options, then a log, then the process. A wrong configuration ends
 * with exit code 2 before anything was opened; every fault of it is told, without a stack: in sentences on stderr, or in
 * the log where that is JSON, so that whoever collects it finds nothing else on stdout and stderr.
 */
export async function runService<R extends Rows>(
  table: OptionTable<R>,
  argv: readonly string[],
  start: (values: ValuesOf<R>, log: Logger) => Promise<Closable>,
): Promise<void> {
  tuneHeapForRelaying();
  const options = await readOptions(table, { argv, env: process.env, hint: flagHint });
  if (options.help) {
    process.stdout.write(helpText(table));
    return;
  }
  if (options.printConfig) process.stdout.write(printConfig(table, options.values, options.sources));
  const complain = (sentence: string): void => void process.stderr.write(`culvert ${table.command}: ${sentence}\n`);
  const { logLevel, logFormat } = options.values as unknown as LogValues;
  const log = createLogger({ level: logLevel, format: logFormat, name: `culvert-${table.command}` });
  const isComplaint = options.printConfig || isForPeople(logFormat) || logLevel === "silent";
  const tellFailure = isComplaint ? complain : (reason: string) => log.fatal({ reason }, "the process cannot start");
  if (options.problems.length > 0) {
    for (const problem of options.problems) tellFailure(problem);
    if (isComplaint) process.stderr.write(`See: culvert ${table.command} --help\n`);
    process.exitCode = 2;
    return;
  }
  if (options.printConfig) {
    for (const warning of options.warnings) complain(warning);
    return;
  }
  for (const warning of options.warnings) log.warn(warning);
  await run(() => start(options.values, log), { log, reload: recheckAllFiles, tellFailure });
}

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
