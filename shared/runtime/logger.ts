import { writeSync } from "node:fs";
import { type DestinationStream, type Logger as PinoLogger, pino, stdTimeFunctions } from "pino";
import { openWithoutWaiting } from "../node/stdio.ts";
import type { Check } from "./check.ts";
import { LogWriter, type LogWriterOptions } from "./log-writer.ts";

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
 * event loop go out in one write that never waits, and the last ones when the process exits.
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
  const shown = (sink: DestinationStream): DestinationStream => (pretty ? prettyStream(sink) : sink);
  if (destination !== undefined) return pino(options, shown(destination));
  stdoutWriter = writerOfStdout((lost, reason) => {
    let text = "";
    const sink = {
      write: (line: string) => {
        text += line;
      },
    };
    pino({ ...options, level: "warn" }, shown(sink)).warn({ lost, reason }, "lines of the log are lost");
    return text;
  });
  return pino(options, shown(stdoutWriter));
}

let stdoutWriter: LogWriter | undefined;

/** For readiness: a log that is not read or cannot be written, which hurts nothing else. */
export function logChecks(): readonly Check[] {
  const detail = stdoutWriter?.fault;
  return detail === undefined ? [] : [{ name: "log", ok: true, hasFaults: true, detail }];
}

/** Whether the log on stdout is lines for people instead of JSON. */
export function isPretty(format: LoggerOptions["format"]): boolean {
  return format === "pretty" || (format === "auto" && process.stdout.isTTY === true);
}

/** A fault of stdout (full disk, closed pipe) is written to stderr, which may be closed or not read as well. */
function writerOfStdout(lostLine: LogWriterOptions["lostLine"]): LogWriter {
  const stdout = openWithoutWaiting(1);
  const onFault = (reason: string): void => {
    try {
      const sentence = `culvert: the log cannot be written to stdout, and lines of it are lost: ${reason}\n`;
      writeSync(openWithoutWaiting(2), sentence);
    } catch {
      // Nobody can be told.
    }
  };
  const writer = new LogWriter({ output: (bytes) => writeSync(stdout, wholeLines(bytes)), lostLine, onFault });
  process.on("exit", writer.flush);
  return writer;
}

/** A write of at most so many bytes to a pipe is whole, or fails (pipe(7), PIPE_BUF). */
const MAX_WHOLE = 4_096;

/** The first lines, of which a pipe cuts none: the audit trail may write to stdout as well. */
export function wholeLines(bytes: Buffer): Buffer {
  if (bytes.length <= MAX_WHOLE) return bytes;
  const end = bytes.lastIndexOf("\n", MAX_WHOLE - 1);
  return end < 0 ? bytes : bytes.subarray(0, end + 1);
}

let prettyFactory: typeof import("pino-pretty").prettyFactory | undefined;

/** To be awaited before a pretty log is created, which else is JSON. Few processes need the package. */
export async function loadPretty(): Promise<void> {
  ({ prettyFactory } = await import("pino-pretty"));
}

/** Formats line by line: the package's own stream or worker would lose lines at exit. */
function prettyStream(destination: DestinationStream): DestinationStream {
  if (prettyFactory === undefined) return destination;
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
