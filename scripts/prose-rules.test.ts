import assert from "node:assert/strict";
import { join } from "node:path";
import { test } from "node:test";
import { pathToFileURL } from "node:url";
import { ROOT } from "../shared/runtime/testing/project.ts";

interface Finding {
  readonly line: number;
  readonly fault: string;
}
interface Rules {
  wideLines(text: string, isMarkdown: boolean): Finding[];
  badRows(text: string): Finding[];
  pointingSentences(text: string, isMarkdown: boolean): Finding[];
}

const { wideLines, badRows, pointingSentences } = (await import(
  pathToFileURL(join(ROOT, "scripts/prose-rules.mjs")).href
)) as Rules;

const linesOf = (findings: readonly Finding[]): number[] => findings.map(({ line }) => line);

test("a sentence of Markdown that begins with a pointer is found, within paragraphs, lists and cells", () => {
  const page = [
    "The server is ready. What it",
    "serves is in the list.",
    "",
    "- Those of the agents.",
    "| a | One that is lost |",
  ];
  assert.deepEqual(linesOf(pointingSentences(page.join("\n"), true)), [1, 4, 5]);
});

test("headings, questions, code and a number before a noun are no such sentence", () => {
  const page = [
    "## What is new",
    "Who may connect?",
    "One server serves all. One of them ends.",
    "```",
    "What a shell prints.",
    "```",
  ];
  assert.deepEqual(pointingSentences(page.join("\n"), true), []);
});

test("a sentence of a comment is found over its lines, and text of code is not", () => {
  const code = [
    "/**",
    " * The links. That is",
    " * all.",
    " * @throws What fails",
    " */",
    'const a = "What is new."; // Who asks',
    "// Whoever",
    "// waits.",
  ];
  assert.deepEqual(linesOf(pointingSentences(code.join("\n"), false)), [2, 4, 6, 7]);
});

test("a cell of a table has at most 30 words, and a row is one line", () => {
  const words = (count: number): string => Array.from({ length: count }, () => "word").join(" ");
  assert.deepEqual(badRows(`| ${words(30)} | a |\n| [a](b c d) \\| ${words(27)} |`), []);
  assert.deepEqual(linesOf(badRows(`| a | ${words(31)} |\nrest of a row |`)), [1, 2]);
});

test("a line of more than 120 columns is found if it could be broken; marks of figures do not count", () => {
  const long = "word ".repeat(24);
  assert.deepEqual(linesOf(wideLines(`${long}word\n${"x".repeat(130)}\n| ${long} |`, true)), [1]);
  assert.deepEqual(wideLines(`${long.slice(5)}<!--=idle-stream-->6<!--/-->`, true), []);
});
