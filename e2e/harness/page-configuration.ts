import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { ROOT } from "../../shared/runtime/testing/project.ts";

/** The configurations of a page of the documentation in one language, as they stand there. */
export function configurations(page: string, language: "haproxy" | "nginx" | "yaml"): string[] {
  const text = readFileSync(join(ROOT, "docs", page), "utf8");
  return [...text.matchAll(new RegExp(`^\`\`\`${language}\n(.*?)^\`\`\``, "gms"))].map(([, text = ""]) => text);
}

/** With the addresses of this test in place of the page's; each has to be there. */
export function located(text: string, addresses: Readonly<Record<string, string>>): string {
  return Object.entries(addresses).reduce((before, [from, to]) => {
    assert.ok(before.includes(from), `the page says nothing of ${from}`);
    return before.replaceAll(from, to);
  }, text);
}
