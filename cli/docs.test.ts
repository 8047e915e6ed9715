import assert from "node:assert/strict";
import { existsSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { OUTCOMES, type OutcomeCode, outcome } from "../shared/outcomes.ts";

const ROOT = fileURLToPath(new URL("..", import.meta.url));
const PAGES = ["README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "docs/errors.md"];

function page(name: string): string {
  return readFileSync(join(ROOT, name), "utf8");
}

test("docs/errors.md has a row with the right status and a paragraph for every outcome, and for no other", () => {
  const text = page("docs/errors.md");
  const rows = [...text.matchAll(/^\| \[`(\w+)`\]\(#\1\) \| (\w+)/gm)].map(([, code, status]) => [code, status]);
  const codes = Object.keys(OUTCOMES) as OutcomeCode[];
  assert.deepEqual(rows.toSorted(), codes.map((code) => [code, String(outcome(code).http ?? "none")]).toSorted());
  for (const code of codes) {
    const paragraph = text.split(`\n### ${code}\n`)[1]?.split("\n#")[0] ?? "";
    assert.ok(paragraph.trim().length > 80, `docs/errors.md says too little about ${code}`);
  }
});

test("links between the pages lead to files and headings that exist", () => {
  for (const name of PAGES) {
    for (const [, link = ""] of page(name).matchAll(/\]\(([^)]+)\)/g)) {
      if (/^https?:/.test(link)) continue;
      const [file = "", heading] = link.split("#");
      const path = file === "" ? join(ROOT, name) : join(ROOT, dirname(name), file);
      assert.ok(existsSync(path), `${name}: ${link}`);
      if (heading !== undefined) assert.match(readFileSync(path, "utf8"), new RegExp(`^#+ ${heading}$`, "m"), link);
    }
  }
});

test("every flag that the pages name is an option of culvert, or of a tool that is shown with it", () => {
  const others =
    /^--(proxy-cacert|proxy-cert|proxy-key|proxytunnel|rm|egress-selector-config-file|dir|server-san|cluster-san|help|print-config)$/;
  const options = page("docs/options.md");
  for (const name of PAGES) {
    for (const [flag] of page(name).matchAll(/(?<![\w-])--[a-z][a-z-]*[a-z]/g)) {
      assert.ok(others.test(flag) || options.includes(`\`${flag}\``) || flag === "--mode", `${name}: ${flag}`);
    }
  }
});

test("the scripts that the pages name are in package.json", () => {
  const { scripts } = JSON.parse(page("package.json")) as { scripts: Record<string, string> };
  for (const name of PAGES) {
    for (const [, script = ""] of page(name).matchAll(/npm run ([a-z0-9:]+)/g)) assert.ok(scripts[script], script);
  }
});
