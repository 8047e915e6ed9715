import { hostname } from "node:os";
import { printable } from "../shared/outcomes.ts";
import { version } from "../shared/runtime/version.ts";

/** What a report begins with: whoever reads it later has to know what was run, where and when. */
export interface Head {
  readonly version: string;
  readonly node: string;
  readonly host: string;
  /** ISO 8601. */
  readonly date: string;
  /** Without passwords. */
  readonly command: string;
}

/** `argv`: what follows `culvert doctor`. */
export function headOf(argv: readonly string[], now = new Date()): Head {
  return {
    version: version(),
    node: process.version,
    host: hostname(),
    date: now.toISOString(),
    command: ["culvert doctor", ...argv.map(shownWord)].join(" "),
  };
}

export function headText({ version, node, host, date, command }: Head): string {
  return `culvert ${version}, Node ${node}, on ${printable(host)}, ${date}\n$ ${command}\n`;
}

function shownWord(word: string): string {
  const [, flag = "", value = word] = /^(--?[\w-]+=)(.*)$/s.exec(word) ?? [];
  const text = printable(`${flag}${withoutSecret(value)}`, MAX_WORD);
  return /^[\w@%+=:,./*-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}

const MAX_WORD = 2_000;

/**
 * Users and passwords of URLs, also of several in one value and of mistaken ones; and a query, which may be a token. A
 * password may hold any character: all before the last @ goes.
 */
function withoutSecret(text: string): string {
  return text
    .replace(/^([a-z][a-z\d+.-]*:\/\/).*@/is, "$1***@")
    .replace(/^(?![a-z][a-z\d+.-]*:\/\/)[^/=\s:]+:.*@/is, "***@")
    .replace(/^([a-z][a-z\d+.-]*:\/\/[^?]*)\?.*/is, "$1?***");
}
