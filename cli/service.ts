import { helpText } from "../shared/config/flags.ts";
import type { OptionTable, Rows, ValuesOf } from "../shared/config/options.ts";
import { readOptions } from "../shared/config/read-options.ts";
import { printConfig } from "../shared/config/show-options.ts";
import { recheckAllFiles } from "../shared/documents/file-watcher.ts";
import { tuneHeapForRelaying } from "../shared/node/v8.ts";
import { createLogger, isForPeople, type Logger } from "../shared/runtime/logger.ts";
import { type Closable, run } from "../shared/runtime/run.ts";
import { flagHint } from "./flag-hint.ts";

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
