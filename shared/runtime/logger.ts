import { writeSync } from "node:fs";
import { createRequire } from "node:module";
import { type DestinationStream, type Logger as PinoLogger, pino, stdTimeFunctions } from "pino";

export type Logger = PinoLogger;

interface LoggerOptions {
  readonly level: string;
  /** `auto` is `pretty` when stdout is a terminal, else `json`. */
  readonly format: "json" | "pretty" | "auto";
  readonly name: string;
  /** Replaces stdout in tests. */
  readonly destination?: DestinationStream;
}

/**
 * The log of a process: JSON lines on stdout, with times in ISO 8601 and levels as words. All lines of one turn of the
 * event loop go out in one synchronous write, at its end or when the process exits, so that the last line before a
 * crash is not lost.
 */
export function createLogger({ level, format, name, destination }: LoggerOptions): Logger {
  const pretty = destination === undefined ? isPretty(format) : format === "pretty";
  const options = {
    name,
    level,
    timestamp: stdTimeFunctions.isoTime,
    // `name` and an id tell processes apart; pid and host name, the defaults of pino, say nothing in a pod.
    base: { name },
    formatters: { level: (label: string) => ({ level: label }) },
  };
  const sink = destination ?? batchedByTurn(stdout(), (flush) => process.on("exit", flush));
  return pino(options, pretty ? prettyStream(sink) : sink);
}

/** Whether the log on stdout is lines for people instead of JSON. */
export function isPretty(format: LoggerOptions["format"]): boolean {
  return format === "pretty" || (format === "auto" && process.stdout.isTTY === true);
}

/**
 * A log that cannot be written (full disk, closed pipe) loses lines, but the process continues. It says so once on
 * stderr, which may be closed as well.
 */
function stdout(): DestinationStream {
  let said = false;
  return pino.destination({ dest: 1, sync: true }).on("error", ({ message }: Error) => {
    if (said) return;
    said = true;
    try {
      writeSync(2, `culvert: the log cannot be written to stdout, and lines of it are lost: ${message}\n`);
    } catch {
      // Nobody can be told.
    }
  });
}

/** Several connections can end in one turn of the event loop: their lines are written by one system call. */
export function batchedByTurn(destination: DestinationStream, onExit: (flush: () => void) => void): DestinationStream {
  let lines = "";
  const flush = (): void => {
    if (lines === "") return;
    const all = lines;
    lines = "";
    destination.write(all);
  };
  onExit(flush);
  return {
    write: (line) => {
      if (lines === "") setImmediate(flush);
      lines += line;
    },
  };
}

/**
 * Loads pino-pretty only when it is used, and formats line by line, since its stream or worker would lose lines at
 * exit.
 */
function prettyStream(destination: DestinationStream): DestinationStream {
  const load = createRequire(import.meta.url);
  const { prettyFactory } = load("pino-pretty") as typeof import("pino-pretty");
  const format = prettyFactory({
    colorize: process.stdout.isTTY && process.env["NO_COLOR"] === undefined,
    translateTime: "SYS:HH:MM:ss.l",
    hideObject: true,
    messageFormat: (record) => readableLine(record),
  });
  return { write: (line) => destination.write(format(line)) };
}

/** pino-pretty shows these fields in front of the message. */
const SHOWN_ELSEWHERE = new Set(["time", "level", "name", "msg"]);

/**
 * Formats a record of the log as a line for people: the message, then `field=value` for each field that is not empty.
 * The stack of an error follows on further lines.
 */
export function readableLine(record: Readonly<Record<string, unknown>>): string {
  const fields: string[] = [];
  let stack = "";
  for (const [name, value] of Object.entries(record)) {
    if (SHOWN_ELSEWHERE.has(name) || value === undefined || value === "") continue;
    if (name === "err" && isError(value)) stack = `\n${value.stack}`;
    else fields.push(`${name}=${shown(value)}`);
  }
  const { msg = "" } = record;
  return [String(msg), ...(fields.length === 0 ? [] : [` ${fields.join(" ")}`])].join(" ") + stack;
}

function isError(value: unknown): value is { readonly stack: string } {
  return typeof value === "object" && value !== null && typeof (value as { stack?: unknown }).stack === "string";
}

/** Text with spaces is quoted, so that the end of a value is visible. */
function shown(value: unknown): string {
  const text = typeof value === "string" ? value : JSON.stringify(value);
  return typeof value === "string" && /[\s"=]/.test(text) ? JSON.stringify(text) : text;
}
