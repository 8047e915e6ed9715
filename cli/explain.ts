import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { foldersAroundProgram } from "../shared/basics/program.ts";
import { nearest } from "../shared/basics/text.ts";
import { ConfigError } from "../shared/config/options.ts";
import { OUTCOMES, type Outcome } from "../shared/outcomes.ts";

/**
 * `culvert explain`: all outcomes with a line each, or the section of docs/errors.md about one. Throws a `ConfigError`.
 */
export function runExplain(
  asked: string | undefined,
  print: (text: string) => void = (text) => process.stdout.write(text),
): void {
  const page = readFileSync(join(docsFolder(), "errors.md"), "utf8");
  if (asked === undefined) {
    const rows = page.matchAll(/^\| \[`(\w+)`\]\(#\w+\) \| ([^|]+) \| ([^|]+) \|$/gm);
    for (const [, code = "", status, inShort] of rows) print(`${code.padEnd(16)} ${status}, ${inShort}\n`);
    return;
  }
  const code = asked.toLowerCase().replaceAll("-", "_");
  const outcomes = outcomesOf(code);
  if (outcomes.length === 0) throw new ConfigError(unknownCode(asked, nearest(code, Object.keys(OUTCOMES))));
  const sections = page.split(/^(?=#{2,3} )/m);
  print(outcomes.map((each) => sections.find((section) => section.startsWith(`### ${each}\n`))).join(""));
}

/** The outcomes of this name, of this HTTP status, or of this error type in `Proxy-Status`: all that a peer may see. */
function outcomesOf(seen: string): string[] {
  return Object.entries<Outcome>(OUTCOMES).flatMap(([code, { proxyStatus, http, agentHttp }]) =>
    code === seen || proxyStatus === seen || [http, agentHttp].includes(Number(seen)) ? [code] : [],
  );
}

function unknownCode(asked: string, guess: string | undefined): string {
  if (/^4\d{3}$/.test(asked)) return `${asked} is a close code of an agent's WebSocket: see docs/link-protocol.md`;
  const cure = guess === undefined ? "culvert explain alone lists them" : `did you mean ${guess}?`;
  return `There is no code ${JSON.stringify(asked.slice(0, 60))}: ${cure}`;
}

/** docs/ is beside package.json: above `dist` as well as above the sources. */
function docsFolder(): string {
  const folders = foldersAroundProgram().map((folder) => join(folder, "docs"));
  const found = folders.find((folder) => existsSync(join(folder, "errors.md")));
  if (found === undefined) throw new ConfigError("docs/errors.md is missing beside dist/: install the whole package");
  return found;
}
