import { createLogger, type Logger } from "../../shared/runtime/logger.ts";

/** One line of the log, as an operator's collector reads it. */
export type LogLine = Readonly<Record<string, unknown>> & { readonly level: string; readonly msg: string };

/** A log that is kept, for a world whose lines are asserted. */
export function captureLog(level = "info"): { readonly log: Logger; readonly lines: LogLine[] } {
  const lines: LogLine[] = [];
  const destination = { write: (line: string) => void lines.push(JSON.parse(line)) };
  return { log: createLogger({ level, format: "json", name: "world", destination }), lines };
}
