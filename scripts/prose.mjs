/**
 * Checks comments and Markdown: `node scripts/prose.mjs [FILE …]`. `npm run lint` runs it.
 *
 * - Lines end at 120 columns. Code is the formatter's; a table row, a code block or a word alone on its line cannot be
 *   broken.
 * - A row of a table is one line, and its cells have at most 30 words.
 * - A sentence begins with a noun: What, Who, Whoever, That, Those, and One as a pronoun send the reader looking.
 */
import { execFileSync } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { badRows, pointingSentences, wideLines } from "./prose-rules.mjs";

const ROOT = fileURLToPath(new URL("..", import.meta.url));
const KINDS = ["*.ts", "*.tsx", "*.mjs", "*.md"];

/** Pages that a run of tests writes: a record of what programs have printed, and no prose. */
const RECORDS = ["docs/kubernetes-results.md"];

const asked = process.argv.slice(2);
const listed = execFileSync("git", ["ls-files", "-co", "--exclude-standard", ...(asked.length > 0 ? asked : KINDS)], {
  cwd: ROOT,
  encoding: "utf8",
});
const files = listed.split("\n").filter((file) => /\.(?:ts|tsx|mjs|md)$/.test(file));
const faults = files.flatMap((file) => {
  const isMarkdown = file.endsWith(".md");
  const text = textOf(file);
  const isWatched = !RECORDS.includes(file);
  const found = [
    ...wideLines(text, isMarkdown),
    ...(isMarkdown && isWatched ? badRows(text) : []),
    ...(isWatched ? pointingSentences(text, isMarkdown) : []),
  ];
  return found.map(({ line, fault }) => `${file}:${line} ${fault}`);
});
for (const fault of faults) console.error(fault);
process.exitCode = faults.length > 0 ? 1 : 0;

/** A file that was deleted and not committed is listed, and is empty. */
function textOf(file) {
  const url = new URL(`../${file}`, import.meta.url);
  return existsSync(url) ? readFileSync(url, "utf8") : "";
}
