import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { ROOT } from "../shared/runtime/testing/project.ts";

/** The text of a page. */
function page(name: string): string {
  return readFileSync(join(ROOT, name), "utf8");
}

/** The Markdown files of a folder, without its index. */
function pagesOf(folder: string): string[] {
  return readdirSync(join(ROOT, folder)).filter((name) => name.endsWith(".md") && name !== "README.md");
}

/** The files in the folder of an index to which it links. */
function linkedBy(index: string): Set<string> {
  return new Set([...page(index).matchAll(/\]\(([\w.-]+\.md)\)/g)].map(([, file = ""]) => file));
}

test("docs/README.md leads to every page of docs", () => {
  const linked = linkedBy("docs/README.md");
  assert.deepEqual(
    pagesOf("docs").filter((name) => !linked.has(name)),
    [],
  );
});

test("docs/decisions/README.md has one row for every decision, with its number", () => {
  const rows = [...page("docs/decisions/README.md").matchAll(/^\| \[(\d{4})\]\(([\w.-]+)\) \| \S.+ \|$/gm)];
  for (const [, number = "", file = ""] of rows) assert.ok(file.startsWith(`${number}-`), file);
  assert.deepEqual(rows.map(([, , file]) => file).toSorted(), pagesOf("docs/decisions").toSorted());
});

const SOURCES = ["server", "agent", "router", "sidecars", "shared", "cli"].flatMap((folder) =>
  readdirSync(join(ROOT, folder), { recursive: true, encoding: "utf8" })
    .filter((name) => name.endsWith(".ts") && !/\.test\.ts$|testing\//.test(name))
    .map((name) => page(join(folder, name))),
);

/** Whether the parts of a quotation between its `…` come one after the other in a text. */
function isQuotedFrom(text: string, quotation: string): boolean {
  let at = 0;
  for (const part of quotation.split("…").map((each) => each.trim())) {
    const found = text.indexOf(part, at);
    if (found === -1) return false;
    at = found + part.length;
  }
  return true;
}

test("each text that docs/troubleshooting.md quotes is one of the program's, or of a real kube-apiserver", () => {
  const [, ...sections] = page("docs/troubleshooting.md").split(/^\| (?:printed|`reason`|message|text|check) \|/m);
  const rows = sections.flatMap((section) => section.split("\n\n")[0]?.split("\n").slice(2) ?? []);
  const quoted = rows.flatMap((row) => [...(row.split(" | ")[0] ?? "").matchAll(/`([^`]+)`/g)].map(([, text]) => text));
  const printed = page("docs/kubernetes-results.md").split("\n");
  // A refusal is printed behind its status, which the program has as a number.
  const isKnown = (text = "") =>
    printed.some((line) => isQuotedFrom(line, text)) ||
    SOURCES.some((source) => isQuotedFrom(source, text.replace(/^code \d+: \d+ /, "")));
  assert.ok(quoted.length > 50);
  assert.deepEqual(
    quoted.filter((text) => !isKnown(text)),
    [],
  );
});

test("the page of each platform says first that it was not tried there", () => {
  for (const name of [...pagesOf("docs/platforms"), "README.md"]) {
    assert.match(page(join("docs/platforms", name)), /^# .+\n\n\*\*(?:Not tried|No page was tried) /, name);
  }
});
