/**
 * Checks that comments and Markdown end at 120 columns, and that each row of a Markdown table begins with `|`:
 * `node scripts/line-width.mjs`. `npm run lint` runs it.
 * Code is the formatter's; a table row, a code block or a word alone on its line cannot be broken.
 */
import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";

const ROOT = fileURLToPath(new URL("..", import.meta.url));
const COLUMNS = 120;

const listed = execFileSync("git", ["ls-files", "-co", "--exclude-standard", "*.ts", "*.tsx", "*.mjs", "*.md"], {
  cwd: ROOT,
  encoding: "utf8",
});
const files = listed.split("\n").filter((file) => file !== "");
const faults = files.flatMap((file) => {
  const isMarkdown = file.endsWith(".md");
  const lines = isMarkdown ? prose(textOf(file)) : comments(textOf(file));
  const wide = lines
    .filter(({ text }) => [...text].length > COLUMNS && /\S\s+\S/.test(text.replace(/^\s*(?:[-*]|\/\/|\d+\.)\s+/, "")))
    .map(({ line }) => `${file}:${line} is longer than ${COLUMNS} columns`);
  const broken = lines
    .filter(({ text }) => isMarkdown && /\s\|$/.test(text))
    .map(({ line }) => `${file}:${line} ends like a row of a table, and does not begin with |`);
  return [...wide, ...broken];
});
for (const fault of faults) console.error(fault);
process.exitCode = faults.length > 0 ? 1 : 0;

/** A file that was deleted and not committed is listed, and is empty. */
function textOf(file) {
  try {
    return readFileSync(new URL(`../${file}`, import.meta.url), "utf8");
  } catch {
    return "";
  }
}

function numbered(text) {
  return text.split("\n").map((line, index) => ({ text: line, line: index + 1 }));
}

function comments(text) {
  return numbered(text).filter((each) => /^\s*(?:\/\/|\/\*\*|\*)\s|\s\/\/\s[^"'`]*$/.test(each.text));
}

function prose(text) {
  let isCode = false;
  return numbered(text).filter((each) => {
    if (each.text.trimStart().startsWith("```")) isCode = !isCode;
    return !isCode && !each.text.trimStart().startsWith("|");
  });
}
