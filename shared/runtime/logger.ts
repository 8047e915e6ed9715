import { createRequire } from "node:module";
import { type DestinationStream, type Logger as PinoLogger, pino, stdTimeFunctions } from "pino";

export type Logger = PinoLogger;

export interface LoggerOptions {
  readonly level: string;
  /** `auto`: lines for people when stdout is a terminal, JSON otherwise. */
  readonly format: "json" | "pretty" | "auto";
  readonly name: string;
  /** Instead of stdout; for tests. */
  readonly destination?: DestinationStream;
}

/**
 * The log of a process: JSON lines on stdout, times in ISO 8601, levels as words (design: "Seen from
 * outside"). The lines of a turn of the event loop go out in one synchronous write, at its end or as the process exits,
 * so that the last line before a crash is there.
 */
export function createLogger({ level, format, name, destination }: LoggerOptions): Logger {
  const pretty = destination === undefined ? isForPeople(format) : format === "pretty";
  const options = {
    name,
    level,
    timestamp: stdTimeFunctions.isoTime,
    // A process is told from its neighbours by `name` and its id; pid and host name say nothing in a pod.
    base: { name },
    formatters: { level: (label: string) => ({ level: label }) },
  };
  const sink = destination ?? byTurn(stdout(), (flush) => process.on("exit", flush));
  return pino(options, pretty ? prettyStream(sink) : sink);
}

/** Whether the log on stdout is lines for people, and not JSON. */
export function isForPeople(format: LoggerOptions["format"]): boolean {
  return format === "pretty" || (format === "auto" && process.stdout.isTTY === true);
}

/** A log that cannot be written (a full disk, a reader that has gone) loses lines; the process goes on with its work. */
function stdout(): DestinationStream {
  return pino.destination({ dest: 1, sync: true }).on("error", () => {});
}

/** A busy server writes a line for each connection, and several connections end in one turn: one system call for all. */
export function byTurn(destination: DestinationStream, onExit: (flush: () => void) => void): DestinationStream {
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

/** Loaded only when it is used; formats line by line, since its stream or worker would lose lines at exit. */
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

/** Fields that a formatter shows in places of their own. */
const SHOWN_ELSEWHERE = new Set(["time", "level", "name", "msg"]);

/**
 * One record of the log as one line for people: the message and `field=value` for each field that says something. The
 * stack of an error follows on lines of its own.
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

/** Text with spaces is quoted, so that one sees where a value ends. */
function shown(value: unknown): string {
  const text = typeof value === "string" ? value : JSON.stringify(value);
  return typeof value === "string" && /[\s"=]/.test(text) ? JSON.stringify(text) : text;
}
