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
