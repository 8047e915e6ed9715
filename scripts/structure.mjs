/**
 * Checks the structure of the product code: `node scripts/structure.mjs`. `npm run lint` runs it.
 *
 * - A folder imports only the folders and packages that `FOLDERS` names. The table has no cycle.
 * - An exported type name is declared once.
 * - A file has at most 400 lines, and a folder at most the lines of code of its budget in `CODE_LINES`.
 * - Nothing is decided by text for people: no RegExp, `includes` or `startsWith` on a message or a reason.
 */
import { readdirSync, readFileSync } from "node:fs";
import { dirname, join, normalize } from "node:path";
import { fileURLToPath } from "node:url";
import { CODE_LINES, FOLDERS, PAGE_CODE_LINES } from "./structure-rules.mjs";

const ROOT = fileURLToPath(new URL("..", import.meta.url));
const PRODUCT = ["shared", "server", "agent", "router", "sidecars", "cli", "ui"];
const MOST_LINES = 400;

/** A test of a text that somebody may reword any day: an error's message, a close reason, a reason phrase. */
const TEXT = "(?:message|reason|sentence|statusMessage)";
const DECIDED_BY_TEXT = new RegExp(
  `\\b${TEXT}\\??\\.(?:includes|startsWith|endsWith|match|search)\\(|\\.(?:test|exec)\\((?:\\w+\\.)*${TEXT}\\)`,
);
/** The YAML parser has one code for several mistakes; only the words of a cure depend on its message. */
const MAY_READ_TEXT = ["shared/documents/yaml.ts"];

const faults = new Set();
const declared = new Map();
const codeLines = new Map();
for (const file of PRODUCT.flatMap(productFiles)) checkFile(file);
for (const [name, files] of declared) {
  if (files.length > 1) faults.add(`the type name ${name} is declared more than once: ${files.join(", ")}`);
}
for (const [folder, lines] of codeLines) checkBudget(folder, lines);
checkNoCycle();
for (const fault of faults) console.error(fault);
process.exitCode = faults.size > 0 ? 1 : 0;

function productFiles(folder) {
  return readdirSync(join(ROOT, folder), { withFileTypes: true, recursive: true })
    .filter((entry) => entry.isFile() && /^(?!testing).*(?<!\.test|\.d)\.tsx?$/.test(entry.name))
    .map((entry) => join(entry.parentPath, entry.name).slice(ROOT.length))
    .filter((file) => !file.includes("/testing/"));
}

function checkFile(file) {
  const text = readFileSync(join(ROOT, file), "utf8");
  const lines = text.split("\n").length - 1;
  if (lines > MOST_LINES) faults.add(`${file} has ${lines} lines; at most ${MOST_LINES} are allowed`);
  const folder = dirname(file);
  codeLines.set(folder, (codeLines.get(folder) ?? 0) + text.split("\n").filter(isCode).length);
  for (const [, name] of text.matchAll(/^export (?:abstract )?(?:class|interface|type) (\w+)/gm)) {
    declared.set(name, [...(declared.get(name) ?? []), file]);
  }
  if (!MAY_READ_TEXT.includes(file)) checkNoText(file, text);
  checkImports(file, text);
}

/** Neither blank nor a comment alone. */
function isCode(line) {
  return !/^\s*(?:$|\/\/|\/\*|\*)/.test(line);
}

function checkBudget(folder, lines) {
  const budget = folder === "ui" ? PAGE_CODE_LINES : (CODE_LINES[folder] ?? 0);
  if (lines > budget)
    faults.add(`${folder} has ${lines} lines of code; its budget in structure-rules.mjs is ${budget}`);
}

function checkNoText(file, text) {
  for (const [index, line] of text.split("\n").entries()) {
    if (DECIDED_BY_TEXT.test(line)) faults.add(`${file}:${index + 1} decides by the text of a message: use a code`);
  }
}

function checkImports(file, text) {
  const folder = dirname(file);
  const rule = FOLDERS[folder];
  if (rule === undefined) {
    faults.add(`scripts/structure-rules.mjs has no rule for the folder ${folder}`);
    return;
  }
  for (const [, specifier] of text.matchAll(/(?:^|\s)(?:from|import)\s*\(?\s*"([@.a-z][^"\s]*)"/g)) {
    if (specifier.startsWith("node:")) continue;
    const target = specifier.startsWith(".") ? dirname(normalize(join(folder, specifier))) : specifier;
    if (target === folder) continue;
    const isAllowed = rule.some(
      (each) => each === target || (!specifier.startsWith(".") && target.startsWith(`${each}/`)),
    );
    if (!isAllowed) faults.add(`${file} imports ${specifier}: ${folder} may import only ${rule.join(", ")}`);
  }
}

/** Follows the rules from each folder and finds one that leads back. */
function checkNoCycle() {
  const done = new Set();
  const visit = (folder, path) => {
    if (path.includes(folder)) {
      faults.add(`folders import each other: ${[...path.slice(path.indexOf(folder)), folder].join(" → ")}`);
      return;
    }
    if (done.has(folder)) return;
    for (const next of FOLDERS[folder] ?? []) if (Object.hasOwn(FOLDERS, next)) visit(next, [...path, folder]);
    done.add(folder);
  };
  for (const folder of Object.keys(FOLDERS)) visit(folder, []);
}
