import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { Help } from "commander";
import { foldersAroundProgram } from "../shared/basics/program.ts";
import { nearest } from "../shared/basics/text.ts";
import { helpWidth } from "../shared/config/flags.ts";
import { ConfigError } from "../shared/config/options.ts";
import { OUTCOMES, type Outcome } from "../shared/outcomes.ts";

/** `culvert explain`: all codes with a line each, or what the pages say of one. Throws a `ConfigError`. */
export function runExplain(
  asked: string | undefined,
  print: (text: string) => void = (text) => process.stdout.write(text),
): void {
  const codes = explainedCodes();
  const width = helpWidth();
  if (asked === undefined) {
    const widest = Math.max(...[...codes.keys()].map((code) => code.length));
    for (const [code, [first]] of codes) print(`${clip(`${code.padEnd(widest)}  ${first?.inShort ?? ""}`, width)}\n`);
    return;
  }
  const code = asked.toLowerCase().replaceAll("-", "_");
  const found = codes.has(code) ? [code] : outcomesWith(code);
  if (found.length === 0) throw new ConfigError(unknownCode(asked, guessFor(code, codes.keys())));
  const texts = found.flatMap((each) => (codes.get(each) ?? []).map((explained) => shown(each, explained, width)));
  print(`${texts.join("\n\n")}\n`);
}

/** The outcomes that are answered with this HTTP status or error type of `Proxy-Status`, which is what a peer sees. */
function outcomesWith(seen: string): string[] {
  return Object.entries<Outcome>(OUTCOMES).flatMap(([code, { proxyStatus, http, agentHttp }]) =>
    proxyStatus === seen || [http, agentHttp].includes(Number(seen)) ? [code] : [],
  );
}

/** With one of four letters or digits wrong, it is another word or number. */
function guessFor(code: string, known: Iterable<string>): string | undefined {
  return code.length <= 4 ? undefined : nearest(code, known);
}

function shown(code: string, { page, inShort, paragraphs }: Explained, width: number): string {
  const heading = `${code} (${page})${inShort === paragraphs[0] || inShort === "" ? "" : `: ${inShort}`}`;
  const texts = paragraphs.map((text) => {
    const isItem = text.startsWith("- ");
    return isItem ? wrapped(text, width - 2).replaceAll("\n", "\n  ") : `\n${wrapped(text, width)}`;
  });
  return [heading, ...texts].join("\n");
}

function wrapped(text: string, width: number): string {
  return new Help().boxWrap(text, width);
}

function unknownCode(asked: string, guess: string | undefined): string {
  const cure = guess === undefined ? "culvert explain alone lists them" : `did you mean ${guess}?`;
  return `There is no code ${JSON.stringify(asked.slice(0, 60))}: ${cure}`;
}

function clip(text: string, width: number): string {
  return text.length <= width ? text : `${text.slice(0, width - 1)}…`;
}

/** What the pages say of one code: an outcome, a fault that an agent or its doctor names, or a WebSocket close code. */
interface Explained {
  /** Page that says so, such as docs/errors.md. */
  readonly page: string;
  readonly inShort: string;
  /** Paragraphs, list items and rows of tables, each without line breaks. */
  readonly paragraphs: readonly string[];
}

/** Where codes are explained, the first page first. */
const PAGES = ["errors.md", "doctor.md", "corporate-networks.md", "link-protocol.md"] as const;

/** Codes by name, in the order of the pages. Throws a `ConfigError` where the pages are not beside the program. */
export function explainedCodes(): Map<string, Explained[]> {
  const codes = new Map<string, Explained[]>();
  const add = (code: string, explained: Explained) => codes.set(code, [...(codes.get(code) ?? []), explained]);
  const folder = docsFolder();
  for (const name of PAGES) {
    const text = readFileSync(join(folder, name), "utf8");
    for (const [code, explained] of codesOf(`docs/${name}`, text)) {
      // The other words of the protocol's page are names of its fields.
      if (name !== "link-protocol.md" || /^4\d{3}$/.test(code)) add(code, explained);
    }
  }
  return codes;
}

/** docs/ stands beside package.json: above `dist` as well as above the sources. */
function docsFolder(): string {
  const candidates = foldersAroundProgram().map((folder) => join(folder, "docs"));
  const found = candidates.find((folder) => existsSync(join(folder, "errors.md")));
  if (found === undefined) throw new ConfigError("docs/errors.md is missing beside dist/: install the whole package");
  return found;
}

/** The codes of a page: headings of the third level that are one word, and rows of tables that begin with codes. */
export function codesOf(page: string, text: string): [code: string, Explained][] {
  const rows = tableRows(text);
  const sections = text.split(/^(?=#{1,3} )/m).flatMap((section): [string, Explained][] => {
    const [, code] = /^### (\w+)\n/.exec(section) ?? [];
    if (code === undefined) return [];
    const inShort = rows.find(({ codes, isLink }) => isLink && codes.includes(code))?.cells.join(", ") ?? "";
    return [[code, { page, inShort, paragraphs: paragraphsOf(section.slice(section.indexOf("\n"))) }]];
  });
  const inTables = rows.flatMap(({ codes, cells, more, isLink }): [string, Explained][] => {
    const inShort = cells.join(": ");
    return isLink ? [] : codes.map((code) => [code, { page, inShort, paragraphs: [inShort, ...more] }]);
  });
  return [...sections, ...inTables];
}

interface Row {
  readonly codes: readonly string[];
  /** The row leads to the section that explains its code. */
  readonly isLink: boolean;
  readonly cells: readonly string[];
  /** List items of the further columns, which are not understood without their headings. */
  readonly more: readonly string[];
}

/** One or more codes as they stand in the first cell, such as `[`limited`](#limited)` or `` `dns` `refused` ``. */
const WORDS = /^(?:(?:\[`\w+`\]\(#\w+\)|`\w+…?`) ?)+$/;
/** The number may stand beside the words of its close. */
const CLOSE_CODE = /^(?:close code )?(4\d{3})\b ?(.*)$/;

/** The rows that are about codes: of close codes, of words as logs and `--json` have them. */
function tableRows(text: string): Row[] {
  let headings: string[] = [];
  return text.split("\n").flatMap((line, at, lines) => {
    if (lines[at + 1]?.startsWith("|---")) headings = cellsOf(line);
    const [first = "", ...cells] = cellsOf(line);
    const [, closeCode, beside = ""] = CLOSE_CODE.exec(first) ?? [];
    const words = WORDS.test(first) ? [...first.matchAll(/`(\w+)`/g)].map(([, word = ""]) => word) : [];
    const codes = closeCode === undefined ? words : [closeCode];
    if (codes.length === 0) return [];
    const isLink = first.startsWith("[");
    const said = [beside, ...(isLink ? cells : cells.slice(0, 1))].map(plain).filter((cell) => cell !== "");
    const more = cells
      .slice(1)
      .flatMap((cell, column) => (cell === "" ? [] : [plain(`- ${headings[column + 2]}: ${cell}`)]));
    return [{ codes, isLink, cells: said, more }];
  });
}

function cellsOf(line: string): string[] {
  if (!line.startsWith("| ")) return [];
  const cells = line.split(/(?<!\\)\|/).map((cell) => cell.trim());
  return cells.slice(1, -1);
}

/** A table becomes a list. */
function paragraphsOf(section: string): string[] {
  const blocks = section.trim().split(/\n{2,}/);
  return blocks.flatMap((block) => {
    if (!block.startsWith("| ")) return [plain(block)];
    const [, , ...rows] = block.split("\n");
    return rows.map((row) => `- ${cellsOf(row).map(plain).join(": ")}`);
  });
}

/** Markdown as it reads best in a terminal. */
function plain(text: string): string {
  return text
    .replace(/\[([^\]]+)\]\([^)]*\)/g, "$1")
    .replaceAll("**", "")
    .replace(/\s*\n\s*/g, " ")
    .trim();
}
