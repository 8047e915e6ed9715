import assert from "node:assert/strict";
import { existsSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { agentOptions } from "../agent/options.ts";
import { serverOptions } from "../server/options.ts";
import { OUTCOMES, type OutcomeCode, outcome } from "../shared/outcomes.ts";
import type { OptionTable } from "../shared/process/options.ts";
import { readOptions } from "../shared/process/read-options.ts";
import { createPki } from "./pki.ts";

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
    /^--(proxy-cacert|proxy-cert|proxy-key|proxytunnel|rm|egress-selector-config-file|dir|server-san|cluster-san|help|print-config|kubernetes)$/;
  const options = page("docs/options.md");
  for (const name of PAGES) {
    for (const [flag] of page(name).matchAll(/(?<![\w-])--[a-z][a-z-]*[a-z]/g)) {
      assert.ok(others.test(flag) || options.includes(`\`${flag}\``) || flag === "--mode", `${name}: ${flag}`);
    }
  }
});

test("the lines that start a server and an agent, in README and in --help, are taken as they stand", async (t) => {
  const dir = mkdtempSync(join(tmpdir(), "culvert-docs-"));
  t.after(() => rmSync(dir, { recursive: true, force: true }));
  await createPki({ dir });
  for (const table of [serverOptions, agentOptions] as unknown as OptionTable[]) {
    const command = ` ${table.command} `;
    const readme = new RegExp(`^node dist/cli/main\\.js${command}(?:.*\\\\\n)*.*$`, "m").exec(page("README.md"));
    for (const lines of [readme?.[0], table.example.join("\n")]) {
      const argv = lines?.split(command)[1]?.split(/[\s\\]+/) ?? [];
      assert.ok(argv.length > 0);
      // A file of the set, wherever the line says it lies.
      const here = argv.map((word) => (/\.(crt|key)$/.test(word) ? join(dir, word.replace(/^pki\//, "")) : word));
      assert.deepEqual((await readOptions(table, { argv: here, env: {} })).problems, [], lines);
    }
  }
});

test("the scripts that the pages name are in package.json", () => {
  const { scripts } = JSON.parse(page("package.json")) as { scripts: Record<string, string> };
  for (const name of PAGES) {
    for (const [, script = ""] of page(name).matchAll(/npm run ([a-z0-9:]+)/g)) assert.ok(scripts[script], script);
  }
});
