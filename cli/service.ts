import { nearest } from "../shared/basics/text.ts";
import { helpText, printConfig } from "../shared/config/flags.ts";
import { flagNames, type OptionTable, type Rows, type ValuesOf } from "../shared/config/options.ts";
import { readOptions } from "../shared/config/read-options.ts";
import { recheckAllFiles } from "../shared/documents/file-watcher.ts";
import { collectWhenQuiet } from "../shared/limits/quiet-collection.ts";
import { tuneHeapForRelaying } from "../shared/node/engine.ts";
import { createLogger, isPretty, type Logger, loadPretty } from "../shared/runtime/logger.ts";
import { type Closable, run } from "../shared/runtime/run.ts";

/** Options of every command with a log (shared/config/common-options.ts). */
type LogValues = { readonly logLevel: string; readonly logFormat: "auto" | "json" | "pretty" };

/**
 * Every command that is a service: reads the options, makes the log, runs the process. A wrong
 * configuration ends with exit code 2 before anything is opened. Every fault is reported without a stack: as sentences
 * on stderr or, where the log is JSON, as lines of the log, so that log collectors find nothing else on stdout and
 * stderr.
 */
export async function runService<R extends Rows>(
  table: OptionTable<R>,
  argv: readonly string[],
  start: (values: ValuesOf<R>, log: Logger) => Promise<Closable>,
): Promise<void> {
  tuneHeapForRelaying();
  const options = await readOptions(table, { argv, env: process.env, hint: flagHint });
  if (options.help !== undefined) {
    process.stdout.write(helpText(table, options.help));
    return;
  }
  if (options.printConfig) process.stdout.write(printConfig(table, options.values, options.sources));
  const printFault = (sentence: string): void => void process.stderr.write(`culvert ${table.command}: ${sentence}\n`);
  const { logLevel, logFormat } = options.values as unknown as LogValues;
  if (isPretty(logFormat)) await loadPretty();
  const log = createLogger({ level: logLevel, format: logFormat, name: `culvert-${table.command}` });
  const usesStderr = options.printConfig || isPretty(logFormat) || logLevel === "silent";
  const reportFailure = usesStderr ? printFault : (reason: string) => log.fatal({ reason }, "the process cannot start");
  if (options.problems.length > 0) {
    for (const problem of options.problems) reportFailure(problem);
    if (usesStderr) process.stderr.write(`See: culvert ${table.command} --help\n`);
    process.exitCode = 2;
    return;
  }
  if (options.printConfig) {
    for (const warning of options.warnings) printFault(warning);
    return;
  }
  for (const warning of options.warnings) log.warn(warning);
  collectWhenQuiet();
  await run(() => start(options.values, log), { log, reload: recheckAllFiles, reportFailure });
}

/** Names of the same option in different commands; each command has one name of a row. */
const SAME_MEANING: readonly (readonly string[])[] = [
  ["admin-port", "admin-server-port", "admin-address"],
  ["health-port", "health-server-port"],
  ["health-bind-address", "health-server-host"],
];

/**
 * The sentence after "There is no flag --x." if another command has that flag, even if it is misspelt: its name in this
 * command, or the command that has it. `known` are the flags of this command; a misspelling of one of them gets no
 * sentence here.
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

/** The name of another command's flag in this command. */
function ownName(name: string, known: readonly string[]): string | undefined {
  const same = SAME_MEANING.find((names) => names.includes(name));
  return same?.find((each) => each !== name && known.includes(each));
}

/** Every flag of a command with an option table, and `--admin-address`, with the commands that have it. */
async function commandsOfFlags(): Promise<Map<string, string[]>> {
  const tables = await Promise.all([
    import("../server/options/options.ts").then(({ serverOptions }) => serverOptions),
    import("../agent/context/options.ts").then(({ agentOptions }) => agentOptions),
    import("../router/options.ts").then(({ routerOptions }) => routerOptions),
  ]);
  const commands = new Map([["admin-address", ["status"]]]);
  for (const { options, command } of tables)
    for (const name of flagNames(options).keys()) commands.set(name, [...(commands.get(name) ?? []), command]);
  return commands;
}
