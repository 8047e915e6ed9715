import { readableLine } from "../../shared/runtime/logger.ts";

/** Prints the lines of a demo, with colours on a terminal only. */
export interface Printer {
  line(text?: string): void;
  heading(text: string): void;
  readonly step: OnStep;
  note(text: string): void;
  failure(text: string): void;
  /** A command to paste into a shell, or a line of a log. */
  command(text: string): void;
}

type Style = "bold" | "dim" | "green" | "red" | "yellow" | "cyan";
const CODES: Record<Style, number> = { bold: 1, dim: 2, green: 32, red: 31, yellow: 33, cyan: 36 };

export function printer(out: Pick<NodeJS.WriteStream, "write" | "isTTY"> = process.stdout): Printer {
  // https://no-color.org
  const coloured = out.isTTY === true && !process.env["NO_COLOR"];
  const styled = (style: Style, text: string): string => (coloured ? `\x1b[${CODES[style]}m${text}\x1b[0m` : text);
  const line = (text = ""): void => void out.write(`${text}\n`);
  return {
    line,
    heading: (text) => line(`\n${styled("bold", text)}\n`),
    step: (text, ms) => line(`  ${styled("green", "✓")} ${styled("cyan", duration(ms).padStart(8))}  ${text}`),
    note: (text) => line(`  ${styled("yellow", "!")} ${" ".repeat(8)}  ${text}`),
    failure: (text) => line(`  ${styled("red", "✗")} ${text}`),
    command: (text) => line(styled("dim", text)),
  };
}

/** Called after each step with what happened and how long it took. */
export type OnStep = (text: string, ms: number) => void;

/** Reports steps, each with the time since the one before. */
export function stopwatch(onStep: OnStep): (text: string) => void {
  let before = performance.now();
  return (text) => {
    const now = performance.now();
    onStep(text, now - before);
    before = now;
  };
}

function duration(ms: number): string {
  return ms < 1_000 ? `${ms.toFixed(1)} ms` : `${(ms / 1_000).toFixed(2)} s`;
}

/** Formats a line of a child's JSON log: the message and the fields that describe a connection. */
export function logLine(name: string, line: string): string {
  const record = parse(line);
  if (record === undefined) return `${name.padEnd(6)}  ${line}`;
  const { time = "", msg = "" } = record;
  const story = readableLine({ msg, ...Object.fromEntries(KEYS.map((key) => [key, record[key]])) });
  return `${name.padEnd(6)}  ${String(time).slice(11, 23)}  ${story}`;
}

const KEYS = [
  "caller",
  "target",
  "agent",
  "outcome",
  "code",
  "reason",
  "dialMs",
  "bytesUp",
  "bytesDown",
  "durationMs",
  "endedBy",
];

function parse(line: string): Record<string, unknown> | undefined {
  if (!line.startsWith("{")) return undefined;
  try {
    return JSON.parse(line) as Record<string, unknown>;
  } catch {
    return undefined;
  }
}
